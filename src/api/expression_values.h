#pragma once

#include "api/dataset_cells.h"
#include "api/expression_node.h"
#include "base/result.h"
#include "data/batch.h"

namespace trireme::api {

// The expression for every row of the batch. What is wrong with the types of the columns is told whatever the rows are,
// and so for a batch that has none.
base::Result<Cells> evaluate(const ExpressionNode& node, const data::Batch& batch);

}  // namespace trireme::api
