#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <map>
#include <string>
#include <string_view>
#include <vector>

// Each NAME_fuzzer.cpp has a namespace with a function fuzz(), which gets an input, and a function seeds(), which
// returns valid inputs to start from, and ends with TRIREME_FUZZER(NAME).

struct Fuzzer {
  void (*fuzz)(const std::uint8_t* data, std::size_t size);
  std::vector<std::string> (*seeds)();
};

inline std::map<std::string, Fuzzer>& fuzzers() {
  static std::map<std::string, Fuzzer> all;
  return all;
}

#define TRIREME_FUZZER(name) \
  [[maybe_unused]] static const bool registered = fuzzers().emplace(#name, Fuzzer{&fuzz, &seeds}).second

// A failed expectation aborts the process, so that libFuzzer keeps the input.
inline void expect(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "expectation failed: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
