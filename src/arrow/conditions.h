#pragma once

#include <arrow/compute/expression.h>
#include <arrow/type.h>

#include <optional>
#include <vector>

#include "trireme/data_source.h"

namespace trireme::arrow {

// For Arrow to compare with what files say of their row groups: nothing where none of the conditions is about a column
// whose type holds its values exactly.
std::optional<::arrow::compute::Expression> expression_of(const std::vector<DataCondition>& conditions,
                                                          const ::arrow::Schema& schema);

}  // namespace trireme::arrow
