#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <utility>
#include <vector>

// Owned buffers for arrays.

namespace trireme::data {

// Memory of an array, released with it.
template <typename T>
std::pair<std::shared_ptr<std::vector<T>>, T*> memory(std::size_t count) {
  auto values = std::make_shared<std::vector<T>>(std::max<std::size_t>(count, 1));
  return {values, values->data()};
}

struct Validity {
  std::shared_ptr<const void> owner;
  const void* bits = nullptr;  // only if there are nulls
  std::int64_t nulls = 0;
};

template <typename IsNull>
Validity validity_of(std::size_t count, IsNull is_null) {
  Validity validity;
  for (std::size_t i = 0; i < count; ++i) validity.nulls += is_null(i) ? 1 : 0;
  if (validity.nulls == 0) return validity;
  auto [owner, bits] = memory<std::uint8_t>((count + 7) / 8);
  for (std::size_t i = 0; i < count; ++i) bits[i / 8] |= static_cast<std::uint8_t>((is_null(i) ? 0 : 1) << (i % 8));
  validity.owner = owner;
  validity.bits = bits;
  return validity;
}

}  // namespace trireme::data
