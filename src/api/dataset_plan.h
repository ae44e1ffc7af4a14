#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/waiting_note.h"
#include "base/result.h"
#include "data/batch.h"
#include "data/order.h"
#include "data/source.h"
#include "trireme/data_source.h"
#include "trireme/value.h"

namespace trireme::api {

// How the rows are to be mixed; carried out by whoever reads them.
struct Shuffle {
  std::optional<std::int64_t> seed;
  bool rows = false;  // or only fragments
  std::optional<std::int64_t> window_rows;
};

// What it takes to make a row.
struct Work {
  bool costly = false;             // functions of the program, or a source that says so
  bool keeps_rows = true;          // the row of a fragment is found without making those before it
  std::int64_t made_together = 1;  // functions see so many rows at once
};

// How to come by a table: a source, or something done to other plans. Safe on any thread.
class Plan {
 public:
  virtual ~Plan() = default;

  // "read_csv(x.csv).filter()": for messages.
  virtual std::string name() const = 0;
  virtual std::vector<std::shared_ptr<Plan>> inputs() const { return {}; }
  virtual std::optional<Shuffle> shuffle() const { return std::nullopt; }
  virtual base::Result<data::Opened> open(std::size_t fragment, std::int64_t row) = 0;
  // For whoever takes no row from `end` on: none of those has to be made.
  virtual base::Result<data::Opened> open_part(std::size_t fragment, std::int64_t row, std::int64_t) {
    return open(fragment, row);
  }
  virtual Work work() const;
  // Whether reading may fail for a while and work again.
  virtual bool remote() const;
  // What a fragment takes while it is read, beside its rows.
  virtual std::int64_t decoding_bytes() const;
  // Of the rows as they come from open().
  virtual base::Result<std::shared_ptr<const data::Schema>> schema();

  // Listed once.
  base::Result<std::vector<DataFragment>> fragments();
  // With their rows: those that nobody knows are counted by reading, once.
  base::Result<std::vector<data::Fragment>> counted();

  // What was counted here and in the inputs, and the same in another process that has made the same plan: nothing is
  // counted there. Refuses a plan that has other fragments.
  Dict counts();
  base::Result<void> take_counts(const Dict& counts);

 protected:
  virtual base::Result<std::vector<DataFragment>> list() = 0;
  // Whoever reads for it ticks the note: a plan that only asks its input says nothing beside that.
  virtual base::Result<std::int64_t> count(std::size_t fragment, WaitingNote& note);

 private:
  base::Result<void> list_once();
  base::Result<void> count_all(std::vector<std::size_t> unknown);

  std::mutex mutex_;
  std::optional<std::vector<DataFragment>> listed_;
  bool counted_ = false;  // all rows of listed_ are known
};

// The plan's fragments as the pipeline reads them.
std::shared_ptr<data::Source> source_of(std::shared_ptr<Plan> plan);

// A fragment's batches from a row on.
class Input {
 public:
  // `end`: of the rows that will be taken, where that is known.
  static base::Result<std::unique_ptr<Input>> open(Plan& plan, std::size_t fragment, std::int64_t row,
                                                   std::optional<std::int64_t> end = {});
  virtual ~Input() = default;

  virtual const std::shared_ptr<const data::Schema>& schema() const = 0;
  // So many rows, fewer at the end and none after it; as many as the source gives at once with 0.
  virtual base::Result<data::Batch> next(std::int64_t rows) = 0;
  // Whether the error that was returned may pass.
  virtual bool may_pass() const = 0;
};

// Ranges of rows of the input, each list one fragment. Called once, with the input's fragments.
using Cut =
    std::function<base::Result<std::vector<std::vector<data::FragmentSlice>>>(const std::vector<data::Fragment>&)>;

std::shared_ptr<Plan> source_plan(std::shared_ptr<DataSource> source);
std::shared_ptr<Plan> memory_plan(std::string name, std::vector<data::Batch> batches);
std::shared_ptr<Plan> cut_plan(std::shared_ptr<Plan> input, std::string name, Cut cut);
std::shared_ptr<Plan> union_plan(std::vector<std::shared_ptr<Plan>> inputs);
std::shared_ptr<Plan> zip_plan(std::shared_ptr<Plan> left, std::shared_ptr<Plan> right);
std::shared_ptr<Plan> shuffle_plan(std::shared_ptr<Plan> input, Shuffle shuffle);
// Read into memory when it is needed first, in the order that its shuffle asks for.
std::shared_ptr<Plan> settled_plan(std::shared_ptr<Plan> input);

// The source that the plan only reads; nullptr for others.
DataSource* source_behind(const Plan& plan);

}  // namespace trireme::api
