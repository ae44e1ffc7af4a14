#pragma once

#include <vector>

#include "api/expression_node.h"
#include "trireme/data_source.h"

namespace trireme::api {

// What a row must meet for the expression to be true of it, as far as that is about one column each: sources leave out
// what cannot. `x > 3 and (y == 1 or z)` gives x > 3.
std::vector<DataCondition> conditions_of(const ExpressionNode& node);

}  // namespace trireme::api
