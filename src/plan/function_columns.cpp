#include "plan/function_columns.h"

#include <string>
#include <string_view>

namespace trireme::plan {
namespace {

using Kind = ValueType::Kind;

// nullptr if there is none.
template <typename C>
auto find(C& columns, const std::string& name) -> decltype(&columns.front().second) {
  for (auto& [each, type] : columns) {
    if (each == name) return &type;
  }
  return nullptr;
}

// The type of the values of a column, if plain values have one.
std::optional<ValueType> value_type(const data::Type& type) {
  ValueType made;
  if (type.kind == data::Kind::kBool) made.kind = Kind::kBool;
  if (type.kind == data::Kind::kText) {
    made.kind = type.format == "z" || type.format == "Z" ? Kind::kBytes : Kind::kText;
  }
  if (type.kind == data::Kind::kFixed && type.format.size() == 1) {
    constexpr std::string_view kFloats = "efg";
    made.kind = kFloats.find(type.format) != std::string_view::npos ? Kind::kFloat : Kind::kInt;
  }
  if (type.kind == data::Kind::kList) {
    auto element = value_type(type.children.front());
    if (!element) return {};
    made.kind = Kind::kList;
    made.children.emplace_back("", *std::move(element));
  }
  return made.kind == Kind::kNull ? std::nullopt : std::optional(made);
}

}  // namespace

std::optional<Columns> FunctionColumns::known() const {
  std::lock_guard lock(mutex_);
  return columns_;
}

void FunctionColumns::learn(Columns columns, const data::Schema& source) {
  std::lock_guard lock(mutex_);
  columns_ = std::move(columns);
  for (const auto& field : source.fields()) {
    if (auto type = value_type(field.type)) source_.emplace_back(field.name, *std::move(type));
  }
}

Columns FunctionColumns::shown(const Columns& columns) const {
  std::lock_guard lock(mutex_);
  Columns made = columns;
  for (auto& [name, type] : made) {
    const ValueType* source = type.kind == Kind::kNull ? find(source_, name) : nullptr;
    if (source) type = *source;
  }
  return made;
}

base::Result<void> FunctionColumns::widen(const Columns& before, const Columns& found) {
  const Columns seen = shown(before);
  const Columns needed = shown(found);
  std::lock_guard lock(mutex_);
  for (const auto& [name, type] : found) {
    // Other readers may have added to it in the meantime.
    ValueType* there = find(*columns_, name);
    const auto both = there ? common_type(*there, type) : type;
    if (!both) {
      return base::error("column '{}' is {} in some rows and {} in others: convert one of them, or drop the column",
                         name, type.text(), there->text());
    }
    if (there) *there = *both;
    else columns_->emplace_back(name, *both);
  }
  if (needed == seen) return {};
  ++revision_;
  for (const auto& [name, type] : needed) {
    const ValueType* known = find(seen, name);
    if (known && *known == type) continue;
    return base::error(
        "later rows need another type than the first ones for column '{}': {}; materialize() the dataset first, which "
        "finds a common type",
        name, type.text());
  }
  return {};
}

}  // namespace trireme::plan
