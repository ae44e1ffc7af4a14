#pragma once

#include <arrow/compute/expression.h>
#include <arrow/type.h>

#include <optional>
#include <vector>

#include "trireme/data_source.h"

namespace trireme::arrow {

// A filter that Arrow compares with the statistics of row groups. Nothing if no condition is on a column whose type
// represents the value exactly.
std::optional<::arrow::compute::Expression> expression_of(const std::vector<DataCondition>& conditions,
                                                          const ::arrow::Schema& schema);

}  // namespace trireme::arrow
