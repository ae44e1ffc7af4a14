#include "plan/value_columns.h"

#include <cstring>
#include <deque>
#include <limits>
#include <memory>
#include <optional>

#include "base/text.h"
#include "data/array_values.h"
#include "data/metadata.h"
#include "data/value_arrays.h"
#include "plan/value_numbers.h"

namespace trireme::plan {
namespace {

using data::fixed_lists_schema;
using data::flat_array;
using data::in_fixed_lists;
using data::in_vector;
using data::list_array;
using data::pointers_to;
using data::tensor_values;
using data::Validity;
using data::validity_of;
using data::Values;
using Kind = ValueType::Kind;

// Numbers, whose values fit into the type: see find_lost().
OwnedArray numbers_array(DType dtype, const Values& values) {
  Tensor all(dtype, {static_cast<std::int64_t>(values.size())});
  const std::size_t width = size_of(dtype);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) store_number(*values[i], dtype, static_cast<char*>(all.data()) + i * width);
  }
  const void* numbers = all.data();
  return flat_array(values.size(), validity_of(values), numbers, std::make_shared<Tensor>(std::move(all)));
}

OwnedArray tensors_array(const ValueType& type, const Values& values) {
  std::vector<std::int64_t> shape = type.shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(values.size()));
  Tensor all(type.dtype, std::move(shape));
  const std::size_t each = values.empty() ? 0 : all.num_bytes() / values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) {
      const Tensor row = with_dtype(values[i]->as_tensor(), type.dtype);
      std::memcpy(static_cast<char*>(all.data()) + i * each, row.data(), each);
    }
  }
  return in_fixed_lists(tensor_values(all), std::ssize(values), type.shape, validity_of(values));
}

// Python's extension type: the elements and the shape of each row.
OwnedSchema ragged_schema(DType dtype, const std::string& name) {
  const auto list = [](const char* part, DType items) {
    return make_schema("+l", part, in_vector(data::fixed_lists_schema(items, {}, "item")));
  };
  return make_schema(
      "+s", name, in_vector(list("data", dtype), list("shape", DType::kI32)),
      data::metadata_of({{"ARROW:extension:name", "trireme.ragged_tensor"}, {"ARROW:extension:metadata", ""}}));
}

OwnedArray ragged_array(const ValueType& type, const Values& values) {
  std::vector<std::int32_t> elements_before = {0};
  std::vector<std::int32_t> dimensions_before = {0};
  std::vector<std::int32_t> shapes;
  for (const Value* value : values) {
    const Tensor* tensor = value ? &value->as_tensor() : nullptr;
    const std::int64_t elements = tensor ? tensor->num_elements() : 0;
    elements_before.push_back(elements_before.back() + static_cast<std::int32_t>(elements));
    if (tensor) shapes.insert(shapes.end(), tensor->shape().begin(), tensor->shape().end());
    dimensions_before.push_back(static_cast<std::int32_t>(shapes.size()));
  }
  Tensor all(type.dtype, {elements_before.back()});
  auto* out = static_cast<char*>(all.data());
  for (const Value* value : values) {
    if (!value) continue;
    const Tensor row = with_dtype(value->as_tensor(), type.dtype);
    if (row.num_bytes() > 0) std::memcpy(out, row.data(), row.num_bytes());
    out += row.num_bytes();
  }
  const auto validity = validity_of(values);
  return make_array(std::ssize(values), validity.nulls, {validity.bits}, {validity.owner},
                    in_vector(list_array(std::move(elements_before), validity, tensor_values(all)),
                              list_array(std::move(dimensions_before), validity, tensor_values(Tensor::of(shapes)))));
}

OwnedSchema schema_of(const ValueType& type, const std::string& name) {
  switch (type.kind) {
    case Kind::kNull: return make_schema("n", name);
    case Kind::kBool: return make_schema("b", name);
    case Kind::kInt: return make_schema("l", name);
    case Kind::kFloat: return make_schema("g", name);
    case Kind::kText: return make_schema("U", name);
    case Kind::kBytes: return make_schema("Z", name);
    case Kind::kTensor: return fixed_lists_schema(type.dtype, type.shape, name);
    case Kind::kRagged: return ragged_schema(type.dtype, name);
    case Kind::kList:
    case Kind::kDict: break;
  }
  std::vector<OwnedSchema> children;
  for (const auto& [child, each] : type.children) children.push_back(schema_of(each, child.empty() ? "item" : child));
  return make_schema(type.kind == Kind::kList ? "+L" : "+s", name, std::move(children));
}

OwnedArray array_of(const ValueType& type, const Values& values);

OwnedArray lists_array(const ValueType& type, const Values& values) {
  std::vector<std::int64_t> offsets = {0};
  Values inside;
  const List none;
  std::deque<List> vectors;  // the elements of tensors, to which `inside` points
  for (const Value* value : values) {
    const Tensor* vector = value ? value->get_if<Tensor>() : nullptr;
    if (vector) vectors.push_back(elements_of(*vector));
    const List& list = vector ? vectors.back() : value ? value->as_list() : none;
    for (const auto& each : list) inside.push_back(each.is_null() ? nullptr : &each);
    offsets.push_back(std::ssize(inside));
  }
  return list_array(std::move(offsets), validity_of(values), array_of(type.children.front().second, inside));
}

OwnedArray dicts_array(const ValueType& type, const Values& values) {
  const auto validity = validity_of(values);
  std::vector<OwnedArray> children;
  for (const auto& [name, each] : type.children) {
    Values inside;
    for (const Value* value : values) {
      const Value* found = value ? value->as_dict().find(name) : nullptr;
      inside.push_back(found && !found->is_null() ? found : nullptr);
    }
    children.push_back(array_of(each, inside));
  }
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits}, {validity.owner},
                    std::move(children));
}

OwnedArray array_of(const ValueType& type, const Values& values) {
  switch (type.kind) {
    case Kind::kNull: return data::null_array(values.size());
    case Kind::kBool:
      return data::bits_array(values.size(), validity_of(values),
                              [&](std::size_t i) { return values[i] && is_true(*values[i]); });
    case Kind::kInt: return numbers_array(DType::kI64, values);
    case Kind::kFloat: return numbers_array(DType::kF64, values);
    case Kind::kText:
    case Kind::kBytes: return data::text_array<std::int64_t>(values);
    case Kind::kTensor: return type.shape.empty() ? numbers_array(type.dtype, values) : tensors_array(type, values);
    case Kind::kRagged: return ragged_array(type, values);
    case Kind::kList: return lists_array(type, values);
    case Kind::kDict: return dicts_array(type, values);
  }
  return {};
}

// The first row that has an integer which the type cannot hold, and why.
struct Lost {
  std::int64_t row = 0;
  std::string why;
};

std::optional<Lost> find_lost(const ValueType& type, const Values& values) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    if (auto why = why_lost(*values[i], type)) return Lost{static_cast<std::int64_t>(i), *std::move(why)};
  }
  return {};
}

base::Result<OwnedArray> column_of(const std::string& name, const ValueType& type, const Values& values,
                                   std::int64_t first) {
  if (const auto lost = has_numbers(type) ? find_lost(type, values) : std::nullopt) {
    const auto here = type_of(*values[static_cast<std::size_t>(lost->row)]);
    return base::error("column '{}' is {} in row {}, and {} in the others: {}; convert one of them, or drop the column",
                       name, here ? here->text() : "", first + lost->row, type.text(), lost->why);
  }
  if (type.kind == Kind::kRagged) {
    std::int64_t elements = 0;
    for (const Value* value : values) elements += value ? value->as_tensor().num_elements() : 0;
    if (elements > std::numeric_limits<std::int32_t>::max())
      return base::error("column '{}': a batch has more than 2^31 values", name);
  }
  return array_of(type, values);
}

// A tensor of shape [rows, ...] as a column of the type.
base::Result<OwnedArray> column_of(const std::string& name, const ValueType& type, const Tensor& tensor,
                                   std::int64_t first) {
  const std::vector<std::int64_t> row_shape(tensor.shape().begin() + 1, tensor.shape().end());
  const auto dtype = type.kind == Kind::kTensor ? std::optional(type.dtype) : dtype_of(type);
  if (dtype == tensor.dtype() && (row_shape.empty() || type.shape == row_shape)) {
    return in_fixed_lists(tensor_values(tensor), tensor.shape().front(), row_shape, {});
  }
  const List rows = elements_of(tensor);
  return column_of(name, type, pointers_to(rows), first);
}

}  // namespace

base::Result<Record> record_of_rows(std::span<const Dict> rows, const Columns& columns, std::int64_t first) {
  std::vector<RecordColumn> made;
  for (const auto& [name, type] : columns) {
    Values values;
    for (const auto& row : rows) {
      const Value* value = row.find(name);
      values.push_back(value && !value->is_null() ? value : nullptr);
    }
    TRIREME_ASSIGN(auto array, column_of(name, type, values, first));
    made.push_back({schema_of(type, name), std::move(array)});
  }
  return record_of(std::move(made), static_cast<std::int64_t>(rows.size()));
}

base::Result<Record> record_of_columns(const Dict& values, const Columns& columns, std::int64_t first) {
  if (values.empty()) return base::error("expected at least one column");
  std::vector<RecordColumn> made;
  std::optional<std::int64_t> rows;
  for (const auto& [name, value] : values) {
    const auto* tensor = value.get_if<Tensor>();
    const std::int64_t here = tensor ? tensor->shape().front() : std::ssize(value.as_list());
    if (rows.value_or(here) != here) {
      return base::error("column '{}' has {} and column '{}' has {}", name, base::count_of(here, "row"),
                         values.begin()->first, *rows);
    }
    rows = here;
  }
  for (const auto& [name, type] : columns) {
    const Value* value = values.find(name);
    const auto* tensor = value ? value->get_if<Tensor>() : nullptr;
    auto array = tensor ? column_of(name, type, *tensor, first)
                        : column_of(name, type, value ? pointers_to(value->as_list()) : Values(*rows), first);
    if (!array) return std::move(array).error();
    made.push_back({schema_of(type, name), *std::move(array)});
  }
  return record_of(std::move(made), *rows);
}

base::Result<Record> record_of_columns(const Dict& values) {
  TRIREME_ASSIGN(const auto columns, columns_of(values));
  return record_of_columns(values, columns);
}

}  // namespace trireme::plan
