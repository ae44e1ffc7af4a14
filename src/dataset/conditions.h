#pragma once

#include <arrow/compute/expression.h>
#include <arrow/scalar.h>
#include <arrow/type.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "trireme/data_source.h"

namespace trireme::dataset {

// A filter that Arrow compares with the statistics of row groups. Nothing if no condition is on a column whose type
// represents the value exactly.
std::optional<::arrow::compute::Expression> expression_of(const std::vector<DataCondition>& conditions,
                                                          const ::arrow::Schema& schema);

// nullptr if the type cannot hold the value. Scalar::CastTo() would wrap -1 around to the largest unsigned number.
std::shared_ptr<::arrow::Scalar> whole_scalar(std::int64_t value, const std::shared_ptr<::arrow::DataType>& type);

}  // namespace trireme::dataset
