#pragma once

#include <cstddef>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <string_view>
#include <vector>

// What each fuzzer defines.

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size);
// Valid inputs to begin with.
std::vector<std::string> fuzz_seeds();

// A broken promise ends the process, so that either driver keeps the input.
inline void expect(bool holds, std::string_view promise) {
  if (holds) return;
  std::fprintf(stderr, "broken promise: %.*s\n", static_cast<int>(promise.size()), promise.data());
  std::abort();
}

inline std::string_view as_text(const std::uint8_t* data, std::size_t size) {
  return {reinterpret_cast<const char*>(data), size};
}
