#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "base/waiting_note.h"
#include "data/batch.h"
#include "data/order.h"
#include "data/source.h"
#include "plan/record.h"
#include "trireme/data_source.h"
#include "trireme/value.h"

namespace trireme::plan {

// How to shuffle the rows; applied by the reader.
struct Shuffle {
  std::optional<std::int64_t> seed;
  bool rows = false;  // false: only fragments
  std::optional<std::int64_t> window_rows;
};

// The cost of computing a row.
struct Work {
  bool costly = false;             // the program's functions, or a source that declares it
  bool keeps_rows = true;          // a row of a fragment can be computed without the rows before it
  std::int64_t made_together = 1;  // number of rows per function call
};

// How to produce a table: a source, or an operation on other plans. Thread-safe.
class Plan {
 public:
  virtual ~Plan() = default;

  // For messages, for example "read_csv(x.csv).filter()".
  virtual std::string name() const = 0;
  virtual std::vector<std::shared_ptr<Plan>> inputs() const { return {}; }
  virtual std::optional<Shuffle> shuffle() const { return std::nullopt; }
  // Like data::Source::open().
  virtual base::Result<data::Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) = 0;
  virtual Work work() const;
  // Whether reading may fail temporarily.
  virtual bool remote() const;
  // Memory of a fragment while it is read, in addition to its rows.
  virtual std::int64_t decoding_bytes() const;
  // Columns of the rows from open().
  virtual base::Result<std::shared_ptr<const data::Schema>> schema();

  // Listed once.
  base::Result<std::vector<DataFragment>> fragments();
  // With their row counts: unknown ones are counted by reading, once.
  base::Result<std::vector<data::Fragment>> counted();

  // Row counts of this plan and its inputs, to be sent to another process that created the same plan and then need not
  // count. take_counts() rejects a plan with different fragments.
  Dict counts();
  base::Result<void> take_counts(const Dict& counts);

 protected:
  virtual base::Result<std::vector<DataFragment>> list() = 0;
  // The plan that reads updates the note: a plan that only forwards to its input shows nothing itself.
  virtual base::Result<std::int64_t> count(std::size_t fragment, base::WaitingNote& note);

 public:
  // Grows when rows of a function have needed wider types than those before: schema() has them then, and streams that
  // were opened before end with an error.
  virtual std::int64_t revision();

 private:
  base::Result<void> list_once();
  base::Result<void> count_all(std::vector<std::size_t> unknown);

  std::mutex mutex_;
  std::optional<std::vector<DataFragment>> listed_;
  bool counted_ = false;  // all rows of listed_ are known
};

// An error, for the readers of a stream with the columns `before`, if rows that follow have wider types.
base::Result<void> check_not_widened(const data::Schema& before, const data::Schema& now);

// The result of a call that reads the plan, and that begins again if rows have needed wider types than those before.
template <typename F>
auto with_widest_types(Plan& plan, F call) -> decltype(call()) {
  while (true) {
    const std::int64_t before = plan.revision();
    try {
      auto made = call();
      if (plan.revision() == before) return made;
    } catch (...) {  // of a library
      if (plan.revision() == before) throw;
    }
  }
}

// The plan's fragments, as the pipeline's source.
std::shared_ptr<data::Source> source_of(std::shared_ptr<Plan> plan);

// A fragment's batches from a row on.
class Input {
 public:
  // `end`: of the rows that will be requested, if known.
  static base::Result<std::unique_ptr<Input>> open(Plan& plan, std::size_t fragment, std::int64_t row,
                                                   std::int64_t end = data::kNoEnd);
  virtual ~Input() = default;

  virtual const std::shared_ptr<const data::Schema>& schema() const = 0;
  // This number of rows, fewer at the end and none after it; 0: as many as the source returns at once.
  virtual base::Result<data::Batch> next(std::int64_t rows) = 0;
  // Whether the returned error may be temporary.
  virtual bool may_pass() const = 0;
};

// Ranges of input rows, one list per fragment. Called once, with the input's fragments.
using Cut =
    std::function<base::Result<std::vector<std::vector<data::FragmentSlice>>>(const std::vector<data::Fragment>&)>;

std::shared_ptr<Plan> source_plan(std::shared_ptr<DataSource> source);
std::shared_ptr<Plan> memory_plan(std::string name, std::vector<data::Batch> batches);
std::shared_ptr<Plan> cut_plan(std::shared_ptr<Plan> input, std::string name, Cut cut);
std::shared_ptr<Plan> union_plan(std::vector<std::shared_ptr<Plan>> inputs);
// The plans with columns of the same types, by name. trireme::data unifies different ones.
base::Result<std::vector<std::shared_ptr<Plan>>> unified(std::vector<std::shared_ptr<Plan>> plans);
std::shared_ptr<Plan> zip_plan(std::shared_ptr<Plan> left, std::shared_ptr<Plan> right);
std::shared_ptr<Plan> shuffle_plan(std::shared_ptr<Plan> input, Shuffle shuffle);
// Read into memory on first use, in the order of its shuffle.
std::shared_ptr<Plan> settled_plan(std::shared_ptr<Plan> input);

// The source, if the plan only reads it; otherwise nullptr.
DataSource* source_behind(const Plan& plan);

}  // namespace trireme::plan
