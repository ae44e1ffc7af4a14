#pragma once

#include "api/dataset_cells.h"
#include "api/expression_node.h"
#include "base/result.h"
#include "data/batch.h"

namespace trireme::api {

// Evaluates the expression for every row of the batch. Type errors do not depend on the rows, so an empty batch reports
// them too.
base::Result<Cells> evaluate(const ExpressionNode& node, const data::Batch& batch);

}  // namespace trireme::api
