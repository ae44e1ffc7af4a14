#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor.h"

// Tensor columns, in the same representation as Python's trireme.data: tensors of one shape as lists of a fixed size,
// vectors of different lengths as lists, others as the extension "trireme.ragged_tensor" (values and shape).

namespace trireme::arrow {

std::shared_ptr<::arrow::DataType> arrow_type(DType dtype);

std::shared_ptr<::arrow::DataType> tensor_type(DType dtype, const std::vector<std::int64_t>& row_shape);
std::shared_ptr<::arrow::Field> ragged_field(const std::string& name, DType dtype);
bool is_ragged(const ::arrow::Field& field);
// For example "uint8[4, 3]".
std::string tensor_text(DType dtype, const std::vector<std::int64_t>& shape);

// `rows` rows of the shape, from contiguous values; a boolean is a byte. Copied only if necessary.
::arrow::Result<std::shared_ptr<::arrow::Array>> tensor_column(DType dtype, const std::vector<std::int64_t>& row_shape,
                                                               std::int64_t rows,
                                                               std::shared_ptr<::arrow::Buffer> values);
// One tensor per row; nullptr: null. All must have the field's element type, and its shape if it has one.
::arrow::Result<std::shared_ptr<::arrow::Array>> tensor_column(const ::arrow::Field& field,
                                                               const std::vector<const Tensor*>& rows);

}  // namespace trireme::arrow
