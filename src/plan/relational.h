#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/arrow_c.h"
#include "plan/stream_op.h"
#include "trireme/export.h"
#include "trireme/expression.h"

namespace trireme::plan {

enum class Aggregation { kSum, kMin, kMax, kMean, kStd, kUnique };

struct Aggregating {
  Aggregation function;
  bool ignore_nulls = true;  // otherwise the result is null if a value is
  int ddof = 0;              // of kStd
};

// The work that the library trireme::data does with Arrow: expressions, aggregates, casts. Tables cross in Arrow's C
// interface. The functions throw a std::exception.
struct Relational {
  std::shared_ptr<const StreamOp> (*filter)(const data::Expression& keeps);
  std::shared_ptr<const StreamOp> (*with_column)(const std::string& column, const data::Expression& value);
  // Aggregates a stream of one column, which it takes, into a record batch with a column "value". For kUnique: the
  // distinct values, in order of first appearance. Otherwise one row, null if there are no values.
  void (*aggregate)(ArrowArrayStream* column, const Aggregating& asked, ArrowArray* out, ArrowSchema* schema);
  // The columns of all schemas, by name, in types that hold the values of each without loss. Takes the schemas.
  void (*unify)(std::vector<ArrowSchema>& schemas, ArrowSchema* out);
  // Casts to the columns of a schema, which it takes; columns that are missing are null.
  std::shared_ptr<const StreamOp> (*conform)(ArrowSchema* schema);
};

// The library calls it when it is loaded.
TRIREME_API void register_relational(const Relational& relational);

// The error names the library that `call` needs.
base::Result<const Relational*> relational(std::string_view call);

}  // namespace trireme::plan
