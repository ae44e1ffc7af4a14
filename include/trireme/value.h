#pragma once

#include <concepts>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/export.h"
#include "trireme/tensor.h"

// The dynamic type of the API, for configurations, metrics and events. It maps one to one to JSON and to Python's None,
// bool, int, float, str, bytes, list and dict. NaN and infinity survive the round trip. Training states (state.h) may
// also hold tensors; configurations, metrics and events may not.

namespace trireme {

class Value;

using List = std::vector<Value>;

struct Bytes {
  std::string data;
  bool operator==(const Bytes&) const = default;
};

// A value has another type than requested, or a key does not exist.
class TRIREME_API ValueError : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// A dict with string keys in insertion order, so that tables and logs keep the user's order.
class TRIREME_API Dict {
 public:
  using Item = std::pair<std::string, Value>;

  Dict();
  Dict(std::initializer_list<Item> items);
  Dict(const Dict&);
  Dict(Dict&&) noexcept;
  Dict& operator=(const Dict&);
  Dict& operator=(Dict&&) noexcept;
  ~Dict();

  // Adds the key with a null value if it is absent.
  Value& operator[](std::string_view key);
  // Throws ValueError that names the key and the existing keys.
  const Value& operator[](std::string_view key) const { return at(key); }
  const Value& at(std::string_view key) const;
  // nullptr if the key is absent.
  const Value* find(std::string_view key) const;
  bool contains(std::string_view key) const { return find(key) != nullptr; }
  bool erase(std::string_view key);
  // Adds a key that the caller knows to be absent, without a lookup: adding n keys takes O(n) time instead of O(n * n).
  Value& append(std::string key, Value value);

  std::size_t size() const;
  bool empty() const { return size() == 0; }
  std::vector<Item>::const_iterator begin() const;
  std::vector<Item>::const_iterator end() const;
  std::vector<Item>::iterator begin();
  std::vector<Item>::iterator end();

  // Compares keys and values; the order does not matter.
  bool operator==(const Dict& other) const;

 private:
  std::vector<Item> items_;
};

class TRIREME_API Value {
 public:
  using Variant = std::variant<std::nullptr_t, bool, std::int64_t, double, std::string, Bytes, List, Dict, Tensor>;

  Value() : variant_(nullptr) {}
  Value(std::nullptr_t) : variant_(nullptr) {}
  Value(bool value) : variant_(value) {}
  template <std::integral T>
  requires(!std::same_as<T, bool>) Value(T value) : variant_(static_cast<std::int64_t>(value)) {}
  template <std::floating_point T>
  Value(T value) : variant_(static_cast<double>(value)) {}
  Value(const char* value) : variant_(std::string(value)) {}
  Value(std::string_view value) : variant_(std::string(value)) {}
  Value(std::string value) : variant_(std::move(value)) {}
  Value(Bytes value) : variant_(std::move(value)) {}
  Value(List value) : variant_(std::move(value)) {}
  Value(Dict value) : variant_(std::move(value)) {}
  Value(Tensor value) : variant_(std::move(value)) {}

  bool is_null() const { return std::holds_alternative<std::nullptr_t>(variant_); }
  bool is_number() const;
  // "null", "bool", "int", "float", "string", "bytes", "list", "dict" or "tensor".
  const char* type_name() const;

  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&variant_);
  }

  // Throws ValueError if the value has another type. An int is accepted as a float; a float is never accepted as an
  // int.
  template <typename T>
  T get() const {
    if constexpr (std::same_as<T, bool>) {
      return as_bool();
    } else if constexpr (std::integral<T>) {
      return static_cast<T>(as_int());
    } else if constexpr (std::floating_point<T>) {
      return static_cast<T>(as_double());
    } else if constexpr (std::same_as<T, std::string>) {
      return as_string();
    } else if constexpr (std::same_as<T, List>) {
      return as_list();
    } else if constexpr (std::same_as<T, Dict>) {
      return as_dict();
    } else if constexpr (std::same_as<T, Tensor>) {
      return as_tensor();
    } else {
      static_assert(std::same_as<T, Bytes>, "a Value holds bool, numbers, std::string, Bytes, List, Dict or Tensor");
      return as_bytes();
    }
  }

  bool as_bool() const;
  std::int64_t as_int() const;
  double as_double() const;
  const std::string& as_string() const;
  const Bytes& as_bytes() const;
  const List& as_list() const;
  const Dict& as_dict() const;
  const Tensor& as_tensor() const;

  // Access to nested values: value["a"]["b"], value[0].
  const Value& operator[](std::string_view key) const { return as_dict().at(key); }
  const Value& operator[](const char* key) const { return as_dict().at(key); }
  // A template, because a literal 0 would otherwise also convert to a null `const char*` key.
  template <std::integral T>
  const Value& operator[](T index) const {
    return element(static_cast<std::size_t>(index));
  }

  const Variant& variant() const { return variant_; }
  Variant& variant() { return variant_; }

  bool operator==(const Value& other) const = default;

 private:
  const Value& element(std::size_t index) const;

  Variant variant_;
};

using Config = Dict;
using Metrics = Dict;

}  // namespace trireme
