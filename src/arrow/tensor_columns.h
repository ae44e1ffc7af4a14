#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/tensor.h"

// Tensors as columns, as Python's trireme.data has them: those of one shape as lists of a fixed size, vectors whose
// lengths differ as lists, others as the extension "trireme.ragged_tensor" (their values, and their shape).

namespace trireme::arrow {

std::shared_ptr<::arrow::DataType> arrow_type(DType dtype);

std::shared_ptr<::arrow::DataType> tensor_type(DType dtype, const std::vector<std::int64_t>& row_shape);
std::shared_ptr<::arrow::Field> ragged_field(const std::string& name, DType dtype);
bool is_ragged(const ::arrow::Field& field);
// "uint8[4, 3]".
std::string tensor_text(DType dtype, const std::vector<std::int64_t>& shape);

// `rows` rows of the shape, from values that lie one after the other; a boolean is a byte. Copied where it must be.
::arrow::Result<std::shared_ptr<::arrow::Array>> tensor_column(DType dtype, const std::vector<std::int64_t>& row_shape,
                                                               std::int64_t rows,
                                                               std::shared_ptr<::arrow::Buffer> values);
// One tensor a row; nullptr: null. All of the field's element type, and of its shape if it has one.
::arrow::Result<std::shared_ptr<::arrow::Array>> tensor_column(const ::arrow::Field& field,
                                                               const std::vector<const Tensor*>& rows);

}  // namespace trireme::arrow
