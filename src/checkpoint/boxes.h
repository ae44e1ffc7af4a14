#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

// Ranges of elements of a tensor, of which each rank may have stored some. The geometry of sharded states in both
// languages.

namespace trireme::checkpoint {

struct Box {
  std::vector<std::int64_t> offset;
  std::vector<std::int64_t> shape;

  // Whether offset and shape have as many dimensions as the other box.
  bool comparable(const Box& other) const;
  std::int64_t elements() const;

  bool operator==(const Box&) const = default;
};

// The elements that both boxes have; nothing if there are none. A box without dimensions has one element.
std::optional<Box> overlap(const Box& a, const Box& b);

// The elements of `wanted` that no part has, as boxes. Parts may overlap if several ranks stored the same, so their
// sizes prove nothing. All boxes have the same number of dimensions.
std::vector<Box> uncovered(const Box& wanted, std::span<const Box> parts);

}  // namespace trireme::checkpoint
