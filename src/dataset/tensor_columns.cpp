#include "tensor_columns.h"

#include <arrow/array/builder_nested.h>
#include <arrow/array/builder_primitive.h>
#include <arrow/array/data.h>
#include <arrow/array/util.h>
#include <arrow/buffer.h>
#include <arrow/util/bitmap_builders.h>
#include <arrow/util/key_value_metadata.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <limits>
#include <stdexcept>

namespace trireme::arrow {
namespace {

constexpr const char* kExtensionName = "ARROW:extension:name";
constexpr const char* kRagged = "trireme.ragged_tensor";

using Arrays = ::arrow::Result<std::shared_ptr<::arrow::Array>>;

Arrays flat_array(DType dtype, std::int64_t count, std::shared_ptr<::arrow::Buffer> values) {
  if (dtype == DType::kBool) {
    ::arrow::BooleanBuilder builder;
    ARROW_RETURN_NOT_OK(builder.AppendValues(values->data(), count));
    return builder.Finish();
  }
  return ::arrow::MakeArray(::arrow::ArrayData::Make(arrow_type(dtype), count, {nullptr, std::move(values)}, 0));
}

::arrow::Result<std::shared_ptr<::arrow::Buffer>> joined(const std::vector<const Tensor*>& rows, std::size_t empty) {
  std::int64_t bytes = 0;
  for (const auto* row : rows) bytes += static_cast<std::int64_t>(row ? row->num_bytes() : empty);
  ARROW_ASSIGN_OR_RAISE(std::shared_ptr<::arrow::Buffer> buffer, ::arrow::AllocateBuffer(bytes));
  auto* out = buffer->mutable_data();
  for (const auto* row : rows) {
    const std::size_t size = row ? row->num_bytes() : empty;
    if (row && size > 0) std::memcpy(out, row->data(), size);
    if (!row) std::memset(out, 0, size);
    out += size;
  }
  return buffer;
}

struct Validity {
  std::shared_ptr<::arrow::Buffer> bits;
  std::int64_t nulls = 0;
};

::arrow::Result<Validity> validity_of(const std::vector<const Tensor*>& rows) {
  std::vector<std::uint8_t> there;
  Validity validity;
  for (const auto* row : rows) {
    there.push_back(row != nullptr);
    validity.nulls += row ? 0 : 1;
  }
  if (validity.nulls > 0) {
    ARROW_ASSIGN_OR_RAISE(validity.bits, ::arrow::internal::BytesToBits(there));
  }
  return validity;
}

// A list of all values of each row.
Arrays value_lists(const std::shared_ptr<::arrow::DataType>& type, DType dtype,
                   const std::vector<const Tensor*>& rows) {
  ARROW_ASSIGN_OR_RAISE(auto values, joined(rows, 0));
  std::vector<std::int32_t> offsets{0};
  for (const auto* row : rows) {
    const std::int64_t next = offsets.back() + (row ? row->num_elements() : 0);
    if (next > std::numeric_limits<std::int32_t>::max())
      return ::arrow::Status::Invalid("more than 2^31 values in one batch");
    offsets.push_back(static_cast<std::int32_t>(next));
  }
  ARROW_ASSIGN_OR_RAISE(auto flat, flat_array(dtype, offsets.back(), std::move(values)));
  ARROW_ASSIGN_OR_RAISE(auto validity, validity_of(rows));
  auto data = ::arrow::ArrayData::Make(type, static_cast<std::int64_t>(rows.size()),
                                       {validity.bits, ::arrow::Buffer::FromVector(std::move(offsets))}, {flat->data()},
                                       validity.nulls);
  return ::arrow::MakeArray(std::move(data));
}

Arrays ragged_column(const ::arrow::DataType& type, DType dtype, const std::vector<const Tensor*>& rows) {
  ARROW_ASSIGN_OR_RAISE(auto values, value_lists(type.field(0)->type(), dtype, rows));
  ::arrow::ListBuilder shapes(::arrow::default_memory_pool(), std::make_shared<::arrow::Int32Builder>(),
                              type.field(1)->type());
  auto& sizes = static_cast<::arrow::Int32Builder&>(*shapes.value_builder());
  for (const auto* row : rows) {
    ARROW_RETURN_NOT_OK(row ? shapes.Append() : shapes.AppendNull());
    if (!row) continue;
    for (const auto size : row->shape()) ARROW_RETURN_NOT_OK(sizes.Append(static_cast<std::int32_t>(size)));
  }
  ARROW_ASSIGN_OR_RAISE(auto shape_lists, shapes.Finish());
  ARROW_ASSIGN_OR_RAISE(auto validity, validity_of(rows));
  return ::arrow::StructArray::Make({values, shape_lists}, type.fields(), validity.bits, validity.nulls);
}

}  // namespace

std::shared_ptr<::arrow::DataType> arrow_type(DType dtype) {
  switch (dtype) {
    case DType::kBool: return ::arrow::boolean();
    case DType::kU8: return ::arrow::uint8();
    case DType::kI8: return ::arrow::int8();
    case DType::kU16: return ::arrow::uint16();
    case DType::kI16: return ::arrow::int16();
    case DType::kU32: return ::arrow::uint32();
    case DType::kI32: return ::arrow::int32();
    case DType::kU64: return ::arrow::uint64();
    case DType::kI64: return ::arrow::int64();
    case DType::kF16: return ::arrow::float16();
    case DType::kF32: return ::arrow::float32();
    case DType::kF64: return ::arrow::float64();
    default: throw std::runtime_error(std::string("Arrow has no type for ") + name_of(dtype));
  }
}

std::shared_ptr<::arrow::DataType> tensor_type(DType dtype, const std::vector<std::int64_t>& row_shape) {
  auto type = arrow_type(dtype);
  for (auto size = row_shape.rbegin(); size != row_shape.rend(); ++size) {
    type = ::arrow::fixed_size_list(type, static_cast<std::int32_t>(*size));
  }
  return type;
}

std::shared_ptr<::arrow::Field> ragged_field(const std::string& name, DType dtype) {
  const auto storage = ::arrow::struct_({::arrow::field("data", ::arrow::list(arrow_type(dtype))),
                                         ::arrow::field("shape", ::arrow::list(::arrow::int32()))});
  return ::arrow::field(name, storage, true,
                        ::arrow::key_value_metadata({kExtensionName, "ARROW:extension:metadata"}, {kRagged, ""}));
}

bool is_ragged(const ::arrow::Field& field) {
  if (!field.HasMetadata()) return false;
  const auto name = field.metadata()->Get(kExtensionName);
  return name.ok() && *name == kRagged;
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

Arrays tensor_column(const ::arrow::Field& field, const std::vector<const Tensor*>& rows) {
  const auto there = std::find_if(rows.begin(), rows.end(), [](const auto* row) { return row != nullptr; });
  if (there == rows.end()) return ::arrow::MakeArrayOfNull(field.type(), static_cast<std::int64_t>(rows.size()));
  const DType dtype = (*there)->dtype();
  const std::vector<std::int64_t>& shape = (*there)->shape();
  if (is_ragged(field)) return ragged_column(*field.type(), dtype, rows);
  if (field.type()->id() == ::arrow::Type::LIST) return value_lists(field.type(), dtype, rows);
  std::size_t row_bytes = size_of(dtype);
  for (const auto size : shape) row_bytes *= static_cast<std::size_t>(size);
  ARROW_ASSIGN_OR_RAISE(auto values, joined(rows, row_bytes));
  ARROW_ASSIGN_OR_RAISE(auto column, tensor_column(dtype, shape, static_cast<std::int64_t>(rows.size()), values));
  ARROW_ASSIGN_OR_RAISE(auto validity, validity_of(rows));
  if (validity.nulls == 0) return column;
  auto data = column->data()->Copy();
  data->buffers[0] = validity.bits;
  data->null_count = validity.nulls;
  return ::arrow::MakeArray(std::move(data));
}

}  // namespace trireme::arrow
