#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "base/text.h"
#include "trireme/value.h"

// Structs that list their fields once (configurations, messages, run events) are converted to Values and back through
// that list. A struct takes part by specialising Fields<T> with a static each(visitor) that calls visitor(name,
// &T::member, doc) for every field, in order.

namespace trireme::base {

template <typename T>
struct Fields;

template <typename T>
concept HasFields = requires {
  Fields<T>::each([](auto&&...) {});
};

// Converts one field type to a Value and back. kind() is the type name in error messages.
template <typename T>
struct Codec;

template <>
struct Codec<bool> {
  static std::string kind() { return "bool"; }
  static Value to(bool value) { return value; }
  static Result<bool> from(const Value& value) {
    if (const auto* held = value.get_if<bool>()) return *held;
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <std::integral T>
requires(!std::same_as<T, bool>) struct Codec<T> {
  static std::string kind() { return "int"; }
  static Value to(T value) { return value; }
  static Result<T> from(const Value& value) {
    if (const auto* held = value.get_if<std::int64_t>()) {
      if (std::in_range<T>(*held)) return static_cast<T>(*held);
      return error("{} is out of range", *held);
    }
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <>
struct Codec<double> {
  static std::string kind() { return "float"; }
  static Value to(double value) { return value; }
  static Result<double> from(const Value& value) {
    if (value.is_number()) return value.as_double();
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <>
struct Codec<std::string> {
  static std::string kind() { return "str"; }
  static Value to(const std::string& value) { return value; }
  static Result<std::string> from(const Value& value) {
    if (const auto* held = value.get_if<std::string>()) return *held;
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <>
struct Codec<Bytes> {
  static std::string kind() { return "bytes"; }
  static Value to(const Bytes& value) { return value; }
  static Result<Bytes> from(const Value& value) {
    if (const auto* held = value.get_if<Bytes>()) return *held;
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <>
struct Codec<Value> {
  static std::string kind() { return "Any"; }
  static Value to(const Value& value) { return value; }
  static Result<Value> from(const Value& value) { return value; }
};

template <>
struct Codec<Dict> {
  static std::string kind() { return "dict[str, Any]"; }
  static Value to(const Dict& value) { return value; }
  static Result<Dict> from(const Value& value) {
    if (const auto* held = value.get_if<Dict>()) return *held;
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <typename T>
struct Codec<std::optional<T>> {
  static std::string kind() { return Codec<T>::kind() + " | None"; }
  static Value to(const std::optional<T>& value) { return value ? Codec<T>::to(*value) : Value(); }
  static Result<std::optional<T>> from(const Value& value) {
    if (value.is_null()) return std::optional<T>();
    auto inner = Codec<T>::from(value);
    if (!inner) return std::move(inner).error();
    return std::optional<T>(std::move(inner).value());
  }
};

template <typename T>
struct Codec<std::vector<T>> {
  static std::string kind() { return "list[" + Codec<T>::kind() + "]"; }
  static Value to(const std::vector<T>& values) {
    List list;
    list.reserve(values.size());
    for (const auto& value : values) list.push_back(Codec<T>::to(value));
    return list;
  }
  static Result<std::vector<T>> from(const Value& value) {
    const auto* list = value.get_if<List>();
    if (!list) return error("expected {}, got {}", kind(), value.type_name());
    std::vector<T> values;
    values.reserve(list->size());
    for (std::size_t i = 0; i < list->size(); ++i) {
      TRIREME_ASSIGN(auto item, Codec<T>::from((*list)[i]), "element {}", i);
      values.push_back(std::move(item));
    }
    return values;
  }
};

template <typename T>
struct Codec<std::map<std::string, T>> {
  static std::string kind() { return "dict[str, " + Codec<T>::kind() + "]"; }
  static Value to(const std::map<std::string, T>& values) {
    Dict dict;
    for (const auto& [key, value] : values) dict[key] = Codec<T>::to(value);
    return dict;
  }
  static Result<std::map<std::string, T>> from(const Value& value) {
    const auto* dict = value.get_if<Dict>();
    if (!dict) return error("expected {}, got {}", kind(), value.type_name());
    std::map<std::string, T> values;
    for (const auto& [key, item] : *dict) {
      TRIREME_ASSIGN(auto converted, Codec<T>::from(item), "'{}'", key);
      values.emplace(key, std::move(converted));
    }
    return values;
  }
};

template <HasFields T>
std::vector<std::string> field_names() {
  std::vector<std::string> names;
  Fields<T>::each([&](const char* name, auto, const char*) { names.emplace_back(name); });
  return names;
}

template <HasFields T>
Dict to_dict(const T& object) {
  Dict dict;
  Fields<T>::each([&](const char* name, auto member, const char*) {
    using Member = std::remove_cvref_t<decltype(object.*member)>;
    dict[name] = Codec<Member>::to(object.*member);
  });
  return dict;
}

// Absent keys keep their default. An unknown key is an error that lists the known keys.
template <HasFields T>
Result<T> from_dict(const Dict& dict, std::string_view type_name) {
  T object{};
  std::optional<Error> failure;
  Fields<T>::each([&](const char* name, auto member, const char*) {
    using Member = std::remove_cvref_t<decltype(object.*member)>;
    const Value* value = dict.find(name);
    if (!value || failure) return;
    auto converted = Codec<Member>::from(*value);
    if (converted) {
      object.*member = std::move(converted).value();
    } else {
      failure = std::move(converted).error().wrap(fmt::format("{}.{}", type_name, name));
    }
  });
  if (failure) return *std::move(failure);
  const auto names = field_names<T>();
  for (const auto& [key, value] : dict) {
    if (std::find(names.begin(), names.end(), key) == names.end()) {
      return error("{} has no field '{}'{} (fields: {})", type_name, key, did_you_mean(key, names), join(names, ", "));
    }
  }
  return object;
}

// The compact form for messages: values in field order, without names.
template <HasFields T>
void append_fields(List& list, const T& object) {
  Fields<T>::each([&](const char*, auto member, const char*) {
    using Member = std::remove_cvref_t<decltype(object.*member)>;
    list.push_back(Codec<Member>::to(object.*member));
  });
}

template <HasFields T>
Result<T> take_fields(const List& list, std::size_t first) {
  T object{};
  std::optional<Error> failure;
  std::size_t index = first;
  Fields<T>::each([&](const char* name, auto member, const char*) {
    using Member = std::remove_cvref_t<decltype(object.*member)>;
    if (failure) return;
    if (index >= list.size()) {
      failure = error("field '{}' is missing", name);
      return;
    }
    auto converted = Codec<Member>::from(list[index++]);
    if (converted) {
      object.*member = std::move(converted).value();
    } else {
      failure = std::move(converted).error().wrap(fmt::format("field '{}'", name));
    }
  });
  if (failure) return *std::move(failure);
  if (index != list.size()) return error("{} fields too many", list.size() - index);
  return object;
}

template <HasFields T>
struct Codec<T> {
  static std::string kind() {
    if constexpr (requires { Fields<T>::type_name; }) {
      return Fields<T>::type_name;
    } else {
      return "dict";
    }
  }
  static Value to(const T& object) { return to_dict(object); }
  static Result<T> from(const Value& value) {
    const auto* dict = value.get_if<Dict>();
    if (!dict) return error("expected {}, got {}", kind(), value.type_name());
    return from_dict<T>(*dict, kind());
  }
};

}  // namespace trireme::base

// Declares a struct from a table of FIELD(type, name, default, doc) rows and registers it with Fields<>.
#define TRIREME_FIELD_MEMBER(type, name, standard, doc) type name = standard;
#define TRIREME_FIELD_VISIT(type, name, standard, doc) visit(#name, &Self::name, doc);
#define TRIREME_STRUCT(Name, TABLE)               \
  struct Name {                                   \
    TABLE(TRIREME_FIELD_MEMBER)                   \
    bool operator==(const Name&) const = default; \
  };
// At namespace trireme::base scope.
#define TRIREME_STRUCT_FIELDS(Name, TABLE)               \
  template <>                                            \
  struct Fields<Name> {                                  \
    using Self = Name;                                   \
    template <typename Visitor>                          \
    static void each([[maybe_unused]] Visitor&& visit) { \
      TABLE(TRIREME_FIELD_VISIT)                         \
    }                                                    \
  };
