#pragma once

#include <cmath>
#include <cstdint>
#include <span>
#include <utility>

// Random numbers that are equal on every machine and with every standard library: the order of data depends on them.

namespace trireme::data {

// A hash of one number (the finalizer of SplitMix64).
inline std::uint64_t mixed(std::uint64_t x) {
  x += 0x9e3779b97f4a7c15ULL;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ULL;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebULL;
  return x ^ (x >> 31);
}

// SplitMix64.
class Random {
 public:
  explicit Random(std::uint64_t seed) : state_(seed) {}

  std::uint64_t next() {
    const std::uint64_t drawn = mixed(state_);
    state_ += 0x9e3779b97f4a7c15ULL;
    return drawn;
  }

  // Uniform below `bound`.
  std::uint64_t below(std::uint64_t bound) {
    // Lemire's method: the high half of a product, redrawn in the few cases that would favor small numbers.
    __extension__ using Wide = unsigned __int128;
    Wide product = static_cast<Wide>(next()) * bound;
    if (static_cast<std::uint64_t>(product) < bound) {
      const std::uint64_t least = (0 - bound) % bound;
      while (static_cast<std::uint64_t>(product) < least) product = static_cast<Wide>(next()) * bound;
    }
    return static_cast<std::uint64_t>(product >> 64);
  }

 private:
  std::uint64_t state_;
};

// Whether random_sample() keeps a row. `row` is its index in the dataset, so that the sample does not depend on how the
// dataset is divided into fragments. This is the definition for both languages.
inline bool samples(std::uint64_t seed, std::int64_t row, double fraction) {
  const std::uint64_t drawn = mixed(seed ^ mixed(static_cast<std::uint64_t>(row)));
  return std::ldexp(static_cast<double>(drawn >> 11), -53) < fraction;
}

template <typename T>
void shuffle(std::span<T> items, Random& random) {
  for (std::size_t left = items.size(); left > 1; --left) std::swap(items[left - 1], items[random.below(left)]);
}

}  // namespace trireme::data
