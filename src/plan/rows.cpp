#include "plan/rows.h"

#include <cmath>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <optional>
#include <string_view>

#include "base/text.h"
#include "data/array_values.h"
#include "data/metadata.h"
#include "plan/record.h"
#include "plan/value_or_throw.h"

namespace trireme::plan {
namespace {

base::Result<Value> value_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index);

base::Result<Value> list_of(const data::Inside& inside) {
  List list;
  for (std::int64_t i = inside.first; i < inside.first + inside.count; ++i) {
    TRIREME_ASSIGN(auto value, value_at(*inside.type, *inside.values, i));
    list.push_back(std::move(value));
  }
  return Value(std::move(list));
}

// Contiguous values; nothing if they are not numbers or have nulls.
std::optional<Tensor> copied_tensor(const ArrowSchema& type, const ArrowArray& values, std::int64_t first,
                                    std::int64_t count, std::vector<std::int64_t> shape) {
  const auto dtype = data::dtype_of_format(type.format);
  if (!dtype || data::any_null(values, first, count)) return std::nullopt;
  first += values.offset;
  Tensor tensor(*dtype, std::move(shape));
  if (*dtype == DType::kBool) {
    const auto* bits = static_cast<const std::uint8_t*>(values.buffers[1]);
    auto out = tensor.values<bool>();
    for (std::int64_t i = 0; i < count; ++i)
      out[static_cast<std::size_t>(i)] = bits[(first + i) / 8] >> ((first + i) % 8) & 1;
  } else if (count > 0) {
    const auto width = static_cast<std::int64_t>(size_of(*dtype));
    std::memcpy(tensor.data(), static_cast<const char*>(values.buffers[1]) + first * width, tensor.num_bytes());
  }
  return tensor;
}

// A row of nested lists of fixed size as one tensor.
std::optional<Tensor> tensor_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index) {
  std::vector<std::int64_t> shape;
  const ArrowSchema* type = &schema;
  const ArrowArray* values = &array;
  std::int64_t first = index;
  std::int64_t count = 1;
  while (std::string_view(type->format).starts_with("+w:")) {
    const std::int64_t length = std::atoll(type->format + 3);
    first = (first + values->offset) * length;
    count *= length;
    shape.push_back(length);
    type = type->children[0];
    values = values->children[0];
  }
  return copied_tensor(*type, *values, first, count, std::move(shape));
}

// A tensor with a different shape in every row: a struct of values and shape.
std::optional<Tensor> ragged_tensor_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t row) {
  if (data::find_metadata(schema.metadata, "ARROW:extension:name") != "trireme.ragged_tensor") return std::nullopt;
  const auto is_list = [&](std::int64_t child) { return std::string_view(schema.children[child]->format) == "+l"; };
  if (schema.n_children != 2 || !is_list(0) || !is_list(1)) return std::nullopt;
  if (std::string_view(schema.children[1]->children[0]->format) != "i") return std::nullopt;
  const auto list = data::list_at(*schema.children[0], *array.children[0], row);
  const auto sizes = data::list_at(*schema.children[1], *array.children[1], row);
  std::vector<std::int64_t> shape;
  std::int64_t elements = 1;
  for (std::int64_t i = 0; i < sizes.count; ++i) {
    shape.push_back(data::whole_at(*sizes.type, *sizes.values, sizes.first + i));
    if (shape.back() < 0 || __builtin_mul_overflow(elements, shape.back(), &elements)) return std::nullopt;
  }
  if (elements != list.count) return std::nullopt;
  return copied_tensor(*list.type, *list.values, list.first, list.count, std::move(shape));
}

base::Result<Value> nested_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = schema.format;
  const std::int64_t row = index + array.offset;
  if (format.starts_with("+w:")) {
    if (auto tensor = tensor_at(schema, array, index)) return Value(*std::move(tensor));
  }
  if (data::is_list(format)) return list_of(data::list_at(schema, array, index));
  if (format != "+s") return base::error("values of type '{}' cannot be shown as rows: select other columns", format);
  if (auto tensor = ragged_tensor_at(schema, array, row)) return Value(*std::move(tensor));
  Dict dict;
  for (std::int64_t i = 0; i < schema.n_children; ++i) {
    TRIREME_ASSIGN(dict[schema.children[i]->name], value_at(*schema.children[i], *array.children[i], row));
  }
  return Value(std::move(dict));
}

base::Result<Value> natural_value(std::uint64_t number) {
  if (number <= std::numeric_limits<std::int64_t>::max()) return Value(static_cast<std::int64_t>(number));
  return base::error(
      "{} does not fit into a 64-bit integer with a sign, which rows have: use batches, or cast the column "
      "to float64",
      number);
}

base::Result<Value> value_at(const ArrowSchema& schema, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = schema.format;
  const std::int64_t row = index + array.offset;
  if (format == "n" || data::null_at(array, index)) return Value();
  if (format.starts_with('+')) return nested_at(schema, array, index);
  if (format.starts_with("w:")) {
    const auto width = static_cast<std::size_t>(std::atoll(schema.format + 2));
    return Value(Bytes{{static_cast<const char*>(array.buffers[1]) + static_cast<std::size_t>(row) * width, width}});
  }
  if (format == "b") return Value(data::whole_at(schema, array, index) != 0);
  if (format == "L") return natural_value(data::load<std::uint64_t>(array.buffers[1], row));
  if (data::is_floating(format)) return Value(data::number_at(schema, array, index));
  if (data::is_text(format)) return Value(data::text_at(schema, array, index));
  if (data::is_bytes(format)) return Value(Bytes{std::string(data::text_at(schema, array, index))});
  if (format == "tdD" || format == "tts" || format == "ttm")
    return Value(data::load<std::int32_t>(array.buffers[1], row));
  if (data::is_whole(format) || (format.starts_with('t') && !format.starts_with("ti")))
    return Value(data::whole_at(schema, array, index));
  return base::error("values of type '{}' cannot be shown as rows: select other columns", format);
}

std::size_t column_at(const data::Batch& batch, std::string_view name) {
  if (auto index = batch.schema()->find(name)) return *index;
  std::vector<std::string> names;
  for (const auto& field : batch.schema()->fields()) names.push_back(field.name);
  throw ValueError(fmt::format("no column named '{}'{} (columns: {})", name, base::did_you_mean(name, names),
                               base::join(names, ", ")));
}

template <typename T>
T value_or_throw_value_error(base::Result<T> result) {
  if (!result) throw ValueError(result.error().message());
  return *std::move(result);
}

}  // namespace

Batch public_batch(data::Batch batch) { return Batch(std::make_shared<const BatchData>(BatchData{std::move(batch)})); }

base::Result<std::vector<Dict>> rows_of(const data::Batch& batch) {
  const Record record = batch.exported();
  std::vector<Dict> rows(static_cast<std::size_t>(batch.rows()));
  for (std::int64_t column = 0; column < record.schema->n_children; ++column) {
    const ArrowSchema& schema = *record.schema->children[column];
    const ArrowArray& array = *record.array->children[column];
    const auto& shape = batch.schema()->fields()[static_cast<std::size_t>(column)].tensor_shape;
    for (std::int64_t row = 0; row < batch.rows(); ++row) {
      TRIREME_ASSIGN(auto value, value_at(schema, array, row + record.array->offset), "column '{}'", schema.name);
      // Arrow's tensor type has the shape in its metadata.
      if (const auto* tensor = value.get_if<Tensor>(); tensor && !shape.empty() && tensor->shape() != shape) {
        value = Tensor::view(tensor->dtype(), shape, tensor->data(), std::make_shared<Tensor>(*tensor));
      }
      rows[static_cast<std::size_t>(row)].append(schema.name, std::move(value));
    }
  }
  return rows;
}

}  // namespace trireme::plan

namespace trireme {

std::int64_t Batch::rows() const { return data_->batch.rows(); }

std::vector<std::string> Batch::columns() const {
  std::vector<std::string> names;
  for (const auto& field : data_->batch.schema()->fields()) names.push_back(field.name);
  return names;
}

Tensor Batch::operator[](std::string_view column) const {
  return plan::value_or_throw_value_error(data_->batch.tensor(plan::column_at(data_->batch, column)));
}

std::optional<Tensor> Batch::find_tensor(std::string_view column) const {
  const auto index = data_->batch.schema()->find(column);
  if (!index) return std::nullopt;
  auto tensor = data_->batch.tensor(*index);
  return tensor ? std::optional(*std::move(tensor)) : std::nullopt;
}

std::vector<std::string_view> Batch::strings(std::string_view column) const {
  return plan::value_or_throw_value_error(data_->batch.strings(plan::column_at(data_->batch, column)));
}

std::vector<Dict> Batch::to_rows() const { return plan::value_or_throw_value_error(plan::rows_of(data_->batch)); }

void Batch::export_to(ArrowArray* array, ArrowSchema* schema) const {
  auto record = data_->batch.exported();
  *array = record.array.give();
  *schema = record.schema.give();
}

}  // namespace trireme
