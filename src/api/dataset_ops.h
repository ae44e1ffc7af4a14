#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "api/dataset_arrays.h"
#include "api/dataset_plan.h"
#include "base/result.h"
#include "data/batch.h"
#include "trireme/data.h"
#include "trireme/expression.h"

namespace trireme::api {

// The rows of a batch among those of its plan, for errors and for what depends on them.
struct Where {
  std::size_t fragment = 0;
  std::int64_t row = 0;  // the first one's, in the fragment
};

// Something that is done to every batch on its way. Called on any thread.
class Op {
 public:
  virtual ~Op() = default;

  virtual std::string name() const = 0;
  // One row comes out for each that goes in, in its place.
  virtual bool keeps_rows() const { return true; }
  // How many rows it wants at once; 0: as they come.
  virtual std::int64_t batch_rows() const { return 0; }
  // What it makes of a row depends on the others of its batch: batches are always cut from the fragment's first row on.
  virtual bool is_aligned() const { return false; }
  // The program's own, which may take long.
  virtual bool is_function() const { return false; }
  // The columns of what comes out, from rows as an example; nullptr where these do not tell.
  virtual base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) = 0;
  // After learn() has told.
  virtual base::Result<Record> apply(const data::Batch& batch, Where where) = 0;
  // Rows that come out of a fragment of so many; -1 where only reading tells.
  virtual std::int64_t count(std::size_t fragment, std::int64_t rows) const;
};

std::shared_ptr<Plan> op_plan(std::shared_ptr<Plan> input, std::unique_ptr<Op> op);

std::unique_ptr<Op> map_op(std::function<Dict(const Dict&)> function);
std::unique_ptr<Op> flat_map_op(std::function<std::vector<Dict>(const Dict&)> function);
std::unique_ptr<Op> map_batches_op(std::function<Dict(const Batch&)> function, const MapBatchesOptions& options);
std::unique_ptr<Op> filter_op(std::function<bool(const Dict&)> keeps);
std::unique_ptr<Op> add_column_op(std::string column, std::function<Value(const Batch&)> function);
std::unique_ptr<Op> filter_op(data::Expression keeps);
std::unique_ptr<Op> with_column_op(std::string column, data::Expression value);
std::unique_ptr<Op> sample_op(double fraction, std::uint64_t seed);

std::unique_ptr<Op> select_op(std::vector<std::string> columns);
std::unique_ptr<Op> drop_op(std::vector<std::string> columns);
std::unique_ptr<Op> rename_op(std::map<std::string, std::string> names);

}  // namespace trireme::api
