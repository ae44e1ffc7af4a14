#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "plan/plan.h"
#include "plan/record.h"
#include "trireme/data.h"

namespace trireme::plan {

// The position of a batch in its plan, for errors and for functions that depend on it.
struct Where {
  std::int64_t row = 0;     // first row, in the fragment
  std::int64_t before = 0;  // rows of the previous fragments; only if the op is positional
};

// An operation on every batch. Called on any thread.
class Op {
 public:
  virtual ~Op() = default;

  virtual std::string name() const = 0;
  // One row of output per row of input, in the same order.
  virtual bool keeps_rows() const { return true; }
  // The number of rows per call; 0: any.
  virtual std::int64_t batch_rows() const { return 0; }
  // The output of a row depends on the other rows of its batch: batches always start at the fragment's first row.
  virtual bool is_aligned() const { return false; }
  // The output of a row depends on its index in the dataset.
  virtual bool is_positional() const { return false; }
  // A user's function, which may be slow.
  virtual bool is_function() const { return false; }
  // The output columns, from sample rows; nullptr if these do not determine them.
  virtual base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) = 0;
  // The same op before learn(), for input whose columns have changed.
  virtual std::unique_ptr<Op> again() const = 0;
  // Grows when later rows have needed wider types than learn() has found.
  virtual std::int64_t revision() const { return 0; }
  // After learn() has determined the columns.
  virtual base::Result<Record> apply(const data::Batch& batch, Where where) = 0;
  // The number of output rows for these rows of the dataset; -1 if only reading tells. For positional ops.
  virtual std::int64_t count(std::int64_t first_row, std::int64_t rows) const;
};

std::shared_ptr<Plan> op_plan(std::shared_ptr<Plan> input, std::unique_ptr<Op> op);

std::unique_ptr<Op> map_op(std::function<Dict(const Dict&)> function);
std::unique_ptr<Op> flat_map_op(std::function<std::vector<Dict>(const Dict&)> function);
std::unique_ptr<Op> map_batches_op(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options);
std::unique_ptr<Op> filter_op(std::function<bool(const Dict&)> keeps);
std::unique_ptr<Op> add_column_op(std::string column, std::function<Value(const Batch&)> function);
std::unique_ptr<Op> sample_op(double fraction, std::uint64_t seed);

std::unique_ptr<Op> select_op(std::vector<std::string> columns);
std::unique_ptr<Op> drop_op(std::vector<std::string> columns);
std::unique_ptr<Op> rename_op(std::map<std::string, std::string> names);

}  // namespace trireme::plan
