#include "trireme/value.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/json.h"
#include "base/text.h"

namespace trireme {
namespace {

auto find_item(auto& items, std::string_view key) {
  return std::find_if(items.begin(), items.end(), [&](const auto& item) { return item.first == key; });
}

template <typename T>
const T& expect(const Value& value, const char* wanted) {
  if (const T* held = value.get_if<T>()) return *held;
  constexpr std::size_t kShown = 80;
  std::string shown = base::to_json(value);
  if (shown.size() > kShown) shown = shown.substr(0, shown.find_last_of("{[,", kShown)) + "...";
  throw ValueError(fmt::format("expected {}, got {}: {}", wanted, value.type_name(), shown));
}

}  // namespace

Dict::Dict() = default;
Dict::Dict(std::initializer_list<Item> items) {
  items_.reserve(items.size());
  for (const auto& [key, value] : items) (*this)[key] = value;
}
Dict::Dict(const Dict&) = default;
Dict::Dict(Dict&&) noexcept = default;
Dict& Dict::operator=(const Dict&) = default;
Dict& Dict::operator=(Dict&&) noexcept = default;
Dict::~Dict() = default;

Value& Dict::operator[](std::string_view key) {
  auto it = find_item(items_, key);
  if (it != items_.end()) return it->second;
  return items_.emplace_back(std::string(key), Value()).second;
}

const Value& Dict::at(std::string_view key) const {
  if (const Value* value = find(key)) return *value;
  std::vector<std::string> names;
  for (const auto& item : items_) names.push_back(item.first);
  throw ValueError(fmt::format("no key named '{}'{} (keys: {})", key, base::did_you_mean(key, names),
                               names.empty() ? "none" : base::join(names, ", ")));
}

const Value* Dict::find(std::string_view key) const {
  auto it = find_item(items_, key);
  return it == items_.end() ? nullptr : &it->second;
}

bool Dict::erase(std::string_view key) {
  auto it = find_item(items_, key);
  if (it == items_.end()) return false;
  items_.erase(it);
  return true;
}

Value& Dict::append(std::string key, Value value) {
  return items_.emplace_back(std::move(key), std::move(value)).second;
}

std::size_t Dict::size() const { return items_.size(); }
std::vector<Dict::Item>::const_iterator Dict::begin() const { return items_.begin(); }
std::vector<Dict::Item>::const_iterator Dict::end() const { return items_.end(); }
std::vector<Dict::Item>::iterator Dict::begin() { return items_.begin(); }
std::vector<Dict::Item>::iterator Dict::end() { return items_.end(); }

bool Dict::operator==(const Dict& other) const {
  if (size() != other.size()) return false;
  return std::all_of(begin(), end(), [&](const Item& item) {
    const Value* value = other.find(item.first);
    return value && *value == item.second;
  });
}

bool Value::is_number() const { return get_if<std::int64_t>() || get_if<double>(); }

const char* Value::type_name() const {
  static constexpr const char* kNames[] = {"null", "bool", "int", "float", "string", "bytes", "list", "dict", "tensor"};
  return kNames[variant_.index()];
}

bool Value::as_bool() const { return expect<bool>(*this, "a bool"); }
std::int64_t Value::as_int() const { return expect<std::int64_t>(*this, "an int"); }
double Value::as_double() const {
  if (const auto* whole = get_if<std::int64_t>()) return static_cast<double>(*whole);
  return expect<double>(*this, "a float");
}
const std::string& Value::as_string() const { return expect<std::string>(*this, "a string"); }
const Bytes& Value::as_bytes() const { return expect<Bytes>(*this, "bytes"); }
const List& Value::as_list() const { return expect<List>(*this, "a list"); }
const Dict& Value::as_dict() const { return expect<Dict>(*this, "a dict"); }
const Tensor& Value::as_tensor() const { return expect<Tensor>(*this, "a tensor"); }

const Value& Value::element(std::size_t index) const {
  const List& list = as_list();
  if (index < list.size()) return list[index];
  throw ValueError(fmt::format("index {} is out of range for a list of size {}", index, list.size()));
}

}  // namespace trireme
