#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

// Defined by each fuzzer.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Valid inputs to start from.
std::vector<std::string> fuzz_seeds();

// A failed expectation aborts the process, so that either driver keeps the input.
inline void expect(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "expectation failed: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
