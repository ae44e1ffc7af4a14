#pragma once

#include <memory>
#include <string>
#include <vector>

#include "data/arrow_c.h"
#include "plan/plan.h"
#include "trireme/export.h"

namespace trireme::plan {

// An operation on the record batches of a fragment, for libraries that compute on whole columns. Methods throw a
// std::exception. Called on any thread.
class TRIREME_API StreamOp {
 public:
  virtual ~StreamOp() = default;

  virtual std::string name() const = 0;
  // One row of output per row of input, in the same order.
  virtual bool keeps_rows() const { return true; }
  // The input columns that it needs; others may be missing.
  virtual std::vector<std::string> columns() const { return {}; }
  // The output columns. Takes the input's columns. Reports errors of the columns before any row is read.
  virtual void schema(ArrowSchema* input, ArrowSchema* out) const = 0;
  // Takes the input.
  virtual void apply(ArrowArrayStream* input, ArrowArrayStream* out) const = 0;
};

std::shared_ptr<Plan> stream_plan(std::shared_ptr<Plan> input, std::shared_ptr<const StreamOp> op);

}  // namespace trireme::plan
