#pragma once

#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "wire/message.h"

// One message of every type, with a value in every field.

namespace trireme::wire::testing {

template <typename T>
struct Sample;

template <typename T>
T sample_of(int seed) {
  return Sample<T>::make(seed);
}

template <std::integral T>
requires(!std::same_as<T, bool>) struct Sample<T> {
  static T make(int seed) { return static_cast<T>(seed % 2 == 0 ? -seed * 1000003 : seed); }
};
template <>
struct Sample<bool> {
  static bool make(int) { return true; }
};
template <>
struct Sample<double> {
  static double make(int seed) { return seed + 0.125; }
};
template <>
struct Sample<std::string> {
  static std::string make(int seed) {
    return "text \xc3\xa4\n\"" + std::string(static_cast<std::size_t>(seed) * 7, 'q');
  }
};
template <>
struct Sample<Bytes> {
  static Bytes make(int seed) { return Bytes{std::string("\0\xff\x80", 3) + std::to_string(seed)}; }
};
template <>
struct Sample<Dict> {
  static Dict make(int seed) {
    return Dict{{"loss", 0.5 * seed}, {"step", seed}, {"nested", Dict{{"list", List{1, "two", nullptr, true}}}}};
  }
};
template <>
struct Sample<Value> {
  static Value make(int seed) { return List{seed, Bytes{"\x01"}, Dict{{"k", -1}}}; }
};
template <typename T>
struct Sample<std::optional<T>> {
  static std::optional<T> make(int seed) { return sample_of<T>(seed); }
};
template <typename T>
struct Sample<std::vector<T>> {
  static std::vector<T> make(int seed) { return {sample_of<T>(seed), sample_of<T>(seed + 1)}; }
};
template <typename T>
struct Sample<std::map<std::string, T>> {
  static std::map<std::string, T> make(int seed) {
    return {{"CPU", sample_of<T>(seed)}, {"GPU", sample_of<T>(seed + 1)}};
  }
};

template <base::HasFields T>
struct Sample<T> {
  static T make(int seed) {
    T object{};
    base::Fields<T>::each([&](const char*, auto member, const char*) {
      using Member = std::remove_cvref_t<decltype(object.*member)>;
      object.*member = sample_of<Member>(seed++);
    });
    return object;
  }
};

// With all values, and with all defaults.
inline std::vector<Message> sample_messages() {
  std::vector<Message> all;
#define TRIREME_SAMPLE(number, Name, TABLE) \
  all.push_back(sample_of<Name>(1));        \
  all.push_back(Name{});
  TRIREME_MESSAGES(TRIREME_SAMPLE)
#undef TRIREME_SAMPLE
  return all;
}

}  // namespace trireme::wire::testing
