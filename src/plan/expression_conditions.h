#pragma once

#include <vector>

#include "plan/expression_node.h"
#include "trireme/data_source.h"

namespace trireme::plan {

// Conditions on single columns that a row must meet for the expression to be true: sources skip fragments that cannot
// meet them. `x > 3 and (y == 1 or z)` gives x > 3.
std::vector<DataCondition> conditions_of(const ExpressionNode& node);

}  // namespace trireme::plan
