#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor.h"

// Tensors of one shape as lists of a fixed size, in the same representation as Python's trireme.data.

namespace trireme::dataset {

std::shared_ptr<::arrow::DataType> arrow_type(DType dtype);

std::shared_ptr<::arrow::DataType> tensor_type(DType dtype, const std::vector<std::int64_t>& row_shape);
// For example "uint8[4, 3]".
std::string tensor_text(DType dtype, const std::vector<std::int64_t>& shape);

// `rows` rows of the shape, from contiguous values; a boolean is a byte. Copied only if necessary.
::arrow::Result<std::shared_ptr<::arrow::Array>> tensor_column(DType dtype, const std::vector<std::int64_t>& row_shape,
                                                               std::int64_t rows,
                                                               std::shared_ptr<::arrow::Buffer> values);

}  // namespace trireme::dataset
