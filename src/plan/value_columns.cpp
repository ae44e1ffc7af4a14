#include "plan/value_columns.h"

#include <fmt/ranges.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <string_view>

#include "base/text.h"
#include "data/array_memory.h"
#include "data/array_values.h"

namespace trireme::plan {
namespace {

using data::format_of;
using data::memory;
using data::Validity;
using Kind = ValueType::Kind;
using Values = std::vector<const Value*>;  // nullptr for null

base::Result<ValueType> merged(ValueType a, ValueType b);

base::Result<ValueType> merged_children(ValueType a, const ValueType& b) {
  const auto differ = [&] { return base::error("{} and {}", a.text(), b.text()); };
  if (a.children.size() != b.children.size()) return differ();
  for (auto& [name, type] : a.children) {
    const auto other =
        std::find_if(b.children.begin(), b.children.end(), [&](auto& each) { return each.first == name; });
    if (other == b.children.end()) return differ();
    TRIREME_ASSIGN(type, merged(std::move(type), other->second));
  }
  return a;
}

base::Result<ValueType> merged(ValueType a, ValueType b) {
  if (a.kind == Kind::kNull) return b;
  if (b.kind == Kind::kNull || a == b) return a;
  if (a.kind == Kind::kInt && b.kind == Kind::kFloat) return b;
  if (a.kind == Kind::kFloat && b.kind == Kind::kInt) return a;
  if (a.kind == b.kind && (a.kind == Kind::kList || a.kind == Kind::kDict)) return merged_children(std::move(a), b);
  return base::error("{} and {}", a.text(), b.text());
}

base::Result<ValueType> type_of(const Value& value) {
  ValueType type;
  if (value.get_if<bool>()) type.kind = Kind::kBool;
  if (value.get_if<std::int64_t>()) type.kind = Kind::kInt;
  if (value.get_if<double>()) type.kind = Kind::kFloat;
  if (value.get_if<std::string>()) type.kind = Kind::kText;
  if (value.get_if<Bytes>()) type.kind = Kind::kBytes;
  if (const auto* tensor = value.get_if<Tensor>()) {
    if (!format_of(tensor->dtype()))
      return base::error("tensors of {} cannot be stored in a table", name_of(tensor->dtype()));
    type = {Kind::kTensor, tensor->dtype(), tensor->shape(), {}};
  }
  if (const auto* list = value.get_if<List>()) {
    type.kind = Kind::kList;
    ValueType element;
    for (const auto& each : *list) {
      TRIREME_ASSIGN(auto here, type_of(each));
      TRIREME_ASSIGN(element, merged(std::move(element), std::move(here)), "a list of");
    }
    type.children.emplace_back("", std::move(element));
  }
  if (const auto* dict = value.get_if<Dict>()) {
    type.kind = Kind::kDict;
    for (const auto& [name, each] : *dict) {
      TRIREME_ASSIGN(auto here, type_of(each), "'{}'", name);
      type.children.emplace_back(name, std::move(here));
    }
  }
  return type;
}

Validity validity_of(const Values& values) {
  return data::validity_of(values.size(), [&](std::size_t i) { return !values[i]; });
}

template <typename T, typename Get>
OwnedArray fixed_array(const Values& values, Get get) {
  const auto validity = validity_of(values);
  auto [owner, out] = memory<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) out[i] = get(*values[i]);
  }
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits, out},
                    {validity.owner, owner});
}

OwnedArray bits_array(std::size_t count, const Validity& validity, const std::function<bool(std::size_t)>& at) {
  auto [owner, bits] = memory<std::uint8_t>((count + 7) / 8);
  for (std::size_t i = 0; i < count; ++i) bits[i / 8] |= static_cast<std::uint8_t>((at(i) ? 1 : 0) << (i % 8));
  return make_array(static_cast<std::int64_t>(count), validity.nulls, {validity.bits, bits}, {validity.owner, owner});
}

OwnedArray text_array(const Values& values) {
  const auto text = [](const Value* value) -> std::string_view {
    if (!value) return {};
    const auto* bytes = value->get_if<Bytes>();
    return bytes ? bytes->data : value->as_string();
  };
  const auto validity = validity_of(values);
  auto [offsets_owner, offsets] = memory<std::int64_t>(values.size() + 1);
  for (std::size_t i = 0; i < values.size(); ++i) {
    offsets[i + 1] = offsets[i] + static_cast<std::int64_t>(text(values[i]).size());
  }
  auto [owner, bytes] = memory<char>(static_cast<std::size_t>(offsets[values.size()]));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto here = text(values[i]);
    if (!here.empty()) std::memcpy(bytes + offsets[i], here.data(), here.size());
  }
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits, offsets, bytes},
                    {validity.owner, offsets_owner, owner});
}

std::string list_format(std::int64_t length) { return fmt::format("+w:{}", length); }

// A tensor of shape [rows, a, b] as lists of a lists of b: the innermost values, wrapped from the inside out.
OwnedSchema tensor_schema(DType dtype, const std::vector<std::int64_t>& row_shape, std::size_t dimension,
                          const std::string& name) {
  if (dimension == row_shape.size()) return make_schema(format_of(dtype), name);
  std::vector<OwnedSchema> children;
  children.push_back(tensor_schema(dtype, row_shape, dimension + 1, "item"));
  return make_schema(list_format(row_shape[dimension]), name, std::move(children));
}

OwnedArray tensor_values(const Tensor& tensor) {
  if (tensor.dtype() == DType::kBool) {
    const auto values = tensor.values<bool>();
    return bits_array(values.size(), {}, [&](std::size_t i) { return values[i]; });
  }
  auto held = std::make_shared<Tensor>(tensor);
  return make_array(tensor.num_elements(), 0, {nullptr, tensor.data()}, {held});
}

// `rows` rows of that shape, whose values are already in `array`.
OwnedArray in_lists(OwnedArray array, std::int64_t rows, const std::vector<std::int64_t>& row_shape,
                    const Validity& validity) {
  for (std::size_t left = row_shape.size(); left > 0; --left) {
    std::int64_t length = rows;
    for (std::size_t i = 0; i + 1 < left; ++i) length *= row_shape[i];
    std::vector<OwnedArray> children;
    children.push_back(std::move(array));
    const bool outermost = left == 1;
    array = make_array(length, outermost ? validity.nulls : 0, {outermost ? validity.bits : nullptr}, {validity.owner},
                       std::move(children));
  }
  return array;
}

OwnedArray tensors_array(const ValueType& type, const Values& values) {
  std::vector<std::int64_t> shape = type.shape;
  shape.insert(shape.begin(), static_cast<std::int64_t>(values.size()));
  Tensor all(type.dtype, std::move(shape));
  const std::size_t each = values.empty() ? 0 : all.num_bytes() / values.size();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) std::memcpy(static_cast<char*>(all.data()) + i * each, values[i]->as_tensor().data(), each);
  }
  auto validity = validity_of(values);
  OwnedArray flat = tensor_values(all);
  if (type.shape.empty() && validity.nulls > 0) {
    flat->null_count = validity.nulls;
    std::vector<const void*> buffers{validity.bits, flat->buffers[1]};
    auto inner = std::make_shared<OwnedArray>(std::move(flat));
    return make_array((*inner)->length, validity.nulls, std::move(buffers), {validity.owner, inner});
  }
  return in_lists(std::move(flat), static_cast<std::int64_t>(values.size()), type.shape, validity);
}

OwnedSchema schema_of(const ValueType& type, const std::string& name) {
  switch (type.kind) {
    case Kind::kNull: return make_schema("n", name);
    case Kind::kBool: return make_schema("b", name);
    case Kind::kInt: return make_schema("l", name);
    case Kind::kFloat: return make_schema("g", name);
    case Kind::kText: return make_schema("U", name);
    case Kind::kBytes: return make_schema("Z", name);
    case Kind::kTensor: return tensor_schema(type.dtype, type.shape, 0, name);
    case Kind::kList:
    case Kind::kDict: break;
  }
  std::vector<OwnedSchema> children;
  for (const auto& [child, each] : type.children) children.push_back(schema_of(each, child.empty() ? "item" : child));
  return make_schema(type.kind == Kind::kList ? "+L" : "+s", name, std::move(children));
}

OwnedArray array_of(const ValueType& type, const Values& values);

OwnedArray lists_array(const ValueType& type, const Values& values) {
  const auto validity = validity_of(values);
  auto [owner, offsets] = memory<std::int64_t>(values.size() + 1);
  Values inside;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const List none;
    for (const auto& each : values[i] ? values[i]->as_list() : none) inside.push_back(each.is_null() ? nullptr : &each);
    offsets[i + 1] = static_cast<std::int64_t>(inside.size());
  }
  std::vector<OwnedArray> children;
  children.push_back(array_of(type.children.front().second, inside));
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits, offsets},
                    {validity.owner, owner}, std::move(children));
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
    case Kind::kNull: {
      const auto count = static_cast<std::int64_t>(values.size());
      return make_array(count, count, {}, {});
    }
    case Kind::kBool:
      return bits_array(values.size(), validity_of(values),
                        [&](std::size_t i) { return values[i] && values[i]->as_bool(); });
    case Kind::kInt: return fixed_array<std::int64_t>(values, [](const Value& value) { return value.as_int(); });
    case Kind::kFloat: return fixed_array<double>(values, [](const Value& value) { return value.as_double(); });
    case Kind::kText:
    case Kind::kBytes: return text_array(values);
    case Kind::kTensor: return tensors_array(type, values);
    case Kind::kList: return lists_array(type, values);
    case Kind::kDict: return dicts_array(type, values);
  }
  return {};
}

Values pointers_to(const List& values) {
  Values pointers;
  for (const auto& each : values) pointers.push_back(each.is_null() ? nullptr : &each);
  return pointers;
}

std::vector<std::string> names_of(const Dict& row) {
  std::vector<std::string> names;
  for (const auto& [name, value] : row) names.push_back(name);
  return names;
}

base::Result<void> check_row(const Dict& row, std::size_t index, const Columns& columns) {
  if (row.size() == columns.size() &&
      std::all_of(columns.begin(), columns.end(), [&](const auto& each) { return row.contains(each.first); })) {
    return {};
  }
  std::vector<std::string> names;
  for (const auto& [name, type] : columns) names.push_back(name);
  return base::error("row {} has the columns {}, but the first row has {}", index, base::join(names_of(row), ", "),
                     base::join(names, ", "));
}

}  // namespace

std::string ValueType::text() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int";
    case Kind::kFloat: return "float";
    case Kind::kText: return "string";
    case Kind::kBytes: return "bytes";
    case Kind::kTensor: return fmt::format("{}[{}]", name_of(dtype), fmt::join(shape, ", "));
    case Kind::kList: return "list of " + children.front().second.text();
    case Kind::kDict: break;
  }
  std::vector<std::string> parts;
  for (const auto& [name, type] : children) parts.push_back(name + ": " + type.text());
  return "{" + base::join(parts, ", ") + "}";
}

base::Result<Columns> columns_of(std::span<const Dict> rows) {
  Columns columns;
  if (rows.empty()) return columns;
  for (const auto& [name, value] : rows.front()) columns.emplace_back(name, ValueType());
  for (std::size_t i = 0; i < rows.size(); ++i) {
    TRIREME_TRY(check_row(rows[i], i, columns));
    for (auto& [name, type] : columns) {
      TRIREME_ASSIGN(auto here, type_of(rows[i].at(name)), "row {}, column '{}'", i, name);
      TRIREME_ASSIGN(type, merged(std::move(type), std::move(here)), "row {}: column '{}' has values of", i, name);
    }
  }
  return columns;
}

base::Result<Record> record_of_rows(std::span<const Dict> rows, const Columns& expected) {
  TRIREME_ASSIGN(const auto found, columns_of(rows));
  std::vector<OwnedSchema> schemas;
  std::vector<OwnedArray> arrays;
  for (const auto& [name, type] : expected) {
    Values values;
    for (std::size_t i = 0; i < rows.size(); ++i) {
      if (i == 0) TRIREME_TRY(check_row(rows[i], i, expected));
      const Value& value = rows[i].at(name);
      values.push_back(value.is_null() ? nullptr : &value);
    }
    for (const auto& [other, here] : found) {
      if (other != name) continue;
      auto both = merged(type, here);
      if (!both || *both != type) {
        return base::error("column '{}' is {} here, but was {} in earlier rows; use one type for all rows", name,
                           here.text(), type.text());
      }
    }
    schemas.push_back(schema_of(type, name));
    arrays.push_back(array_of(type, values));
  }
  return record_of(std::move(schemas), std::move(arrays), static_cast<std::int64_t>(rows.size()));
}

base::Result<Record> record_of_columns(const Dict& columns) {
  std::vector<OwnedSchema> schemas;
  std::vector<OwnedArray> arrays;
  for (const auto& [name, value] : columns) {
    if (const auto* tensor = value.get_if<Tensor>()) {
      if (tensor->shape().empty())
        return base::error("column '{}' is a tensor without dimensions: expected a first dimension for the rows", name);
      TRIREME_ASSIGN(auto type, type_of(value), "column '{}'", name);
      const std::vector<std::int64_t> row_shape(type.shape.begin() + 1, type.shape.end());
      schemas.push_back(tensor_schema(type.dtype, row_shape, 0, name));
      arrays.push_back(in_lists(tensor_values(*tensor), tensor->shape().front(), row_shape, {}));
    } else if (const auto* list = value.get_if<List>()) {
      TRIREME_ASSIGN(auto type, type_of(value), "column '{}'", name);
      schemas.push_back(schema_of(type.children.front().second, name));
      arrays.push_back(array_of(type.children.front().second, pointers_to(*list)));
    } else {
      return base::error("column '{}' is a {}: expected a tensor or a list with a value for each row", name,
                         value.type_name());
    }
    if (arrays.back()->length != arrays.front()->length) {
      return base::error("column '{}' has {} and column '{}' has {}", name,
                         base::count_of(arrays.back()->length, "row"), columns.begin()->first, arrays.front()->length);
    }
  }
  if (arrays.empty()) return base::error("expected at least one column");
  const std::int64_t rows = arrays.front()->length;
  return record_of(std::move(schemas), std::move(arrays), rows);
}

}  // namespace trireme::plan
