#pragma once

#include <arrow/compute/expression.h>
#include <arrow/type.h>

#include <string>
#include <vector>

#include "plan/expression_node.h"

namespace trireme::dataset {

// Arrow's form of an expression over these columns. Throws for values that no row of a column can equal.
::arrow::compute::Expression arrow_expression(const plan::ExpressionNode& node, const ::arrow::Schema& schema);

// The columns that the expression uses.
std::vector<std::string> columns_of(const plan::ExpressionNode& node);

}  // namespace trireme::dataset
