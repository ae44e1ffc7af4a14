#include "tensor_columns.h"

#include <arrow/array/builder_primitive.h>
#include <arrow/array/data.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <arrow/c/bridge.h>

#include <iterator>
#include <stdexcept>

#include "data/array_values.h"
#include "status.h"

namespace trireme::dataset {
namespace {

using Arrays = ::arrow::Result<std::shared_ptr<::arrow::Array>>;

Arrays flat_array(DType dtype, std::int64_t count, std::shared_ptr<::arrow::Buffer> values) {
  if (dtype == DType::kBool) {
    ::arrow::BooleanBuilder builder;
    ARROW_RETURN_NOT_OK(builder.AppendValues(values->data(), count));
    return builder.Finish();
  }
  return ::arrow::MakeArray(::arrow::ArrayData::Make(arrow_type(dtype), count, {nullptr, std::move(values)}, 0));
}

}  // namespace

std::shared_ptr<::arrow::DataType> arrow_type(DType dtype) {
  const char* format = data::format_of(dtype);
  if (!format) throw std::runtime_error(std::string("Arrow has no type for ") + name_of(dtype));
  ArrowSchema schema{};
  schema.format = format;
  schema.release = [](ArrowSchema* released) { released->release = nullptr; };
  return check(::arrow::ImportType(&schema));
}

std::shared_ptr<::arrow::DataType> tensor_type(DType dtype, const std::vector<std::int64_t>& row_shape) {
  auto type = arrow_type(dtype);
  for (auto size = row_shape.rbegin(); size != row_shape.rend(); ++size) {
    type = ::arrow::fixed_size_list(type, static_cast<std::int32_t>(*size));
  }
  return type;
}

std::string tensor_text(DType dtype, const std::vector<std::int64_t>& shape) {
  std::string text = arrow_type(dtype)->ToString() + "[";
  for (std::size_t i = 0; i < shape.size(); ++i) text += (i ? ", " : "") + std::to_string(shape[i]);
  return text + "]";
}

Arrays tensor_column(DType dtype, const std::vector<std::int64_t>& row_shape, std::int64_t rows,
                     std::shared_ptr<::arrow::Buffer> values) {
  std::int64_t count = rows;
  for (const auto size : row_shape) count *= size;
  ARROW_ASSIGN_OR_RAISE(auto flat, flat_array(dtype, count, std::move(values)));
  auto data = flat->data();
  auto type = flat->type();
  for (auto size = row_shape.rbegin(); size != row_shape.rend(); ++size) {
    type = ::arrow::fixed_size_list(type, static_cast<std::int32_t>(*size));
    count = rows;
    for (auto outer = row_shape.begin(); outer != std::prev(size.base()); ++outer) count *= *outer;
    data = ::arrow::ArrayData::Make(type, count, {nullptr}, {data}, 0);
  }
  return ::arrow::MakeArray(data);
}

}  // namespace trireme::dataset
