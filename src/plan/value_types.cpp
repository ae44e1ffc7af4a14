#include "plan/value_types.h"

#include <fmt/ranges.h>

#include <algorithm>

#include "base/text.h"
#include "data/element_types.h"

namespace trireme::plan {
namespace {

using Kind = ValueType::Kind;

constexpr const char* kAdvice = "convert one of them, or drop the column";

const char* arrow_name(DType dtype) {
  const auto* known = data::find_element_type(dtype);
  return known ? known->name : name_of(dtype);
}

char element_kind(DType dtype) {
  const auto* known = data::find_element_type(dtype);
  return known ? known->kind() : '\0';
}

// Of 16 bits are not promoted.
bool is_float(DType dtype) { return dtype == DType::kF32 || dtype == DType::kF64; }
bool is_unsigned(DType dtype) { return element_kind(dtype) == 'u'; }
bool is_number(DType dtype) { return is_float(dtype) || is_unsigned(dtype) || element_kind(dtype) == 'i'; }

DType signed_of(std::size_t bytes) {
  return bytes <= 1 ? DType::kI8 : bytes == 2 ? DType::kI16 : bytes == 4 ? DType::kI32 : DType::kI64;
}

// As Arrow promotes numbers.
std::optional<DType> common_dtype(DType a, DType b) {
  if (a == b) return a;
  if (!is_number(a) || !is_number(b)) return {};
  const std::size_t wider = std::max(size_of(a), size_of(b));
  if (is_float(a) || is_float(b)) return wider == 8 ? DType::kF64 : DType::kF32;
  if (is_unsigned(a) == is_unsigned(b)) return size_of(a) > size_of(b) ? a : b;
  const auto [plain, natural] = is_unsigned(a) ? std::pair(b, a) : std::pair(a, b);
  return size_of(plain) > size_of(natural) ? plain : signed_of(2 * size_of(natural));
}

std::optional<ValueType> common_dict(ValueType first, const ValueType& second) {
  for (const auto& [name, type] : second.children) {
    const auto there = std::find_if(first.children.begin(), first.children.end(),
                                    [&name = name](const auto& each) { return each.first == name; });
    if (there == first.children.end()) {
      first.children.emplace_back(name, type);
      continue;
    }
    auto both = common_type(there->second, type);
    if (!both) return {};
    there->second = *std::move(both);
  }
  return first;
}

// What a vector holds, as a list does.
std::optional<ValueType> element_of(const ValueType& type) {
  if (type.kind == Kind::kList) return type.children.front().second;
  if (type.kind == Kind::kTensor && type.shape.size() == 1) return number_type(type.dtype);
  return {};
}

std::optional<ValueType> common_list(const ValueType& first, const ValueType& second) {
  const auto mine = element_of(first);
  const auto its = element_of(second);
  if (!mine || !its) return {};
  auto both = common_type(*mine, *its);
  if (!both) return {};
  return ValueType{.kind = Kind::kList, .dtype = {}, .shape = {}, .children = {{"", *std::move(both)}}};
}

std::optional<ValueType> common_ragged(const ValueType& first, const ValueType& second) {
  const auto is_tensor = [](const ValueType& type) {
    return type.kind == Kind::kRagged || (type.kind == Kind::kTensor && !type.shape.empty());
  };
  if (!is_tensor(first) || !is_tensor(second)) return {};
  const auto both = common_dtype(first.dtype, second.dtype);
  if (!both) return {};
  return ValueType{.kind = Kind::kRagged, .dtype = *both, .shape = {}, .children = {}};
}

// Adds the type of one more row to a column.
base::Result<void> widen(ValueType& type, const ValueType& here, const std::string& column, std::int64_t row) {
  if (type == here) return {};
  auto both = common_type(type, here);
  if (!both) {
    return base::error("column '{}' is {} in row {} and {} in the rows before: {}", column, here.text(), row,
                       type.text(), kAdvice);
  }
  type = *std::move(both);
  return {};
}

// Rows usually have the columns in the same order: `guess` is the index of the next one.
ValueType& column_in(Columns& columns, const std::string& name, std::size_t& guess) {
  if (guess < columns.size() && columns[guess].first == name) return columns[guess++].second;
  for (guess = 0; guess < columns.size(); ++guess) {
    if (columns[guess].first == name) return columns[guess++].second;
  }
  ++guess;
  return columns.emplace_back(name, ValueType()).second;
}

// The first value that is not null: the row that has another type than the rows before.
std::int64_t first_value(const List& values) {
  const auto found = std::find_if(values.begin(), values.end(), [](const Value& each) { return !each.is_null(); });
  return found == values.end() ? 0 : found - values.begin();
}

}  // namespace

std::string ValueType::text() const {
  switch (kind) {
    case Kind::kNull: return "null";
    case Kind::kBool: return "bool";
    case Kind::kInt: return "int64";
    case Kind::kFloat: return "double";
    case Kind::kText: return "string";
    case Kind::kBytes: return "binary";
    case Kind::kTensor:
      return shape.empty() ? arrow_name(dtype)
                           : fmt::format("tensor<{}>[{}]", arrow_name(dtype), fmt::join(shape, ", "));
    case Kind::kRagged: return fmt::format("tensor<{}> of any shape", arrow_name(dtype));
    case Kind::kList: return "list<item: " + children.front().second.text() + ">";
    case Kind::kDict: break;
  }
  std::vector<std::string> parts;
  for (const auto& [name, type] : children) parts.push_back(name + ": " + type.text());
  return "struct<" + base::join(parts, ", ") + ">";
}

ValueType number_type(DType dtype) {
  ValueType type;
  type.kind = dtype == DType::kBool ? Kind::kBool : dtype == DType::kI64 ? Kind::kInt : Kind::kFloat;
  if (dtype == DType::kBool || dtype == DType::kI64 || dtype == DType::kF64) return type;
  type.kind = Kind::kTensor;
  type.dtype = dtype;
  return type;
}

std::optional<DType> dtype_of(const ValueType& type) {
  switch (type.kind) {
    case Kind::kBool: return DType::kBool;
    case Kind::kInt: return DType::kI64;
    case Kind::kFloat: return DType::kF64;
    case Kind::kTensor: return type.shape.empty() ? std::optional(type.dtype) : std::nullopt;
    default: return {};
  }
}

base::Result<ValueType> type_of(const Value& value) {
  ValueType type;
  if (value.get_if<bool>()) type.kind = Kind::kBool;
  if (value.get_if<std::int64_t>()) type.kind = Kind::kInt;
  if (value.get_if<double>()) type.kind = Kind::kFloat;
  if (value.get_if<std::string>()) type.kind = Kind::kText;
  if (value.get_if<Bytes>()) type.kind = Kind::kBytes;
  if (const auto* tensor = value.get_if<Tensor>()) {
    if (!data::find_element_type(tensor->dtype()))
      return base::error("tensors of {} cannot be stored in a table", name_of(tensor->dtype()));
    if (tensor->shape().empty()) return number_type(tensor->dtype());
    type = {Kind::kTensor, tensor->dtype(), tensor->shape(), {}};
  }
  if (const auto* list = value.get_if<List>()) {
    type.kind = Kind::kList;
    ValueType element;
    for (const auto& each : *list) {
      TRIREME_ASSIGN(const auto here, type_of(each));
      auto both = common_type(element, here);
      if (!both) return base::error("a list of {} and {}", element.text(), here.text());
      element = *std::move(both);
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

std::optional<ValueType> common_type(const ValueType& first, const ValueType& second) {
  if (first.kind == Kind::kNull || first == second) return second;
  if (second.kind == Kind::kNull) return first;
  if (first.kind == Kind::kDict && second.kind == Kind::kDict) return common_dict(first, second);
  const auto mine = dtype_of(first);
  const auto its = dtype_of(second);
  if (mine && its) {
    const auto both = common_dtype(*mine, *its);
    return both ? std::optional(number_type(*both)) : std::nullopt;
  }
  if (first.kind == Kind::kTensor && second.kind == Kind::kTensor && first.shape == second.shape) {
    const auto both = common_dtype(first.dtype, second.dtype);
    if (!both) return {};
    return ValueType{.kind = Kind::kTensor, .dtype = *both, .shape = first.shape, .children = {}};
  }
  if (auto lists = common_list(first, second)) return lists;
  return common_ragged(first, second);
}

base::Result<Columns> columns_of(std::span<const Dict> rows, Columns before, std::int64_t first) {
  for (const auto& row : rows) {
    std::size_t guess = 0;
    for (const auto& [name, value] : row) {
      auto& type = column_in(before, name, guess);
      if (value.is_null()) continue;
      TRIREME_ASSIGN(const auto here, type_of(value), "row {}, column '{}'", first, name);
      TRIREME_TRY(widen(type, here, name, first));
    }
    ++first;
  }
  return before;
}

base::Result<Columns> columns_of(const Dict& columns, Columns before, std::int64_t first) {
  std::size_t guess = 0;
  for (const auto& [name, value] : columns) {
    auto& type = column_in(before, name, guess);
    TRIREME_ASSIGN(auto here, type_of(value), "column '{}'", name);
    if (const auto* tensor = value.get_if<Tensor>()) {
      if (tensor->shape().empty())
        return base::error("column '{}' is a tensor without dimensions: expected a first dimension for the rows", name);
      here.shape.erase(here.shape.begin());
      if (here.shape.empty()) here = number_type(here.dtype);
      TRIREME_TRY(widen(type, here, name, first));
    } else if (const auto* list = value.get_if<List>()) {
      TRIREME_TRY(widen(type, here.children.front().second, name, first + first_value(*list)));
    } else {
      return base::error("column '{}' is a {}: expected a tensor or a list with a value for each row", name,
                         value.type_name());
    }
  }
  return before;
}

}  // namespace trireme::plan
