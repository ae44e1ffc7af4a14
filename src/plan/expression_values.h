#pragma once

#include "base/result.h"
#include "data/batch.h"
#include "plan/cells.h"
#include "plan/expression_node.h"

namespace trireme::plan {

// Evaluates the expression for every row of the batch. Type errors do not depend on the rows, so an empty batch reports
// them too.
base::Result<Cells> evaluate(const ExpressionNode& node, const data::Batch& batch);

}  // namespace trireme::plan
