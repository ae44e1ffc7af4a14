#include "checkpoint/boxes.h"

#include <doctest/doctest.h>

#include <limits>

namespace boxes_test {

using trireme::checkpoint::Box;
using trireme::checkpoint::overlap;
using trireme::checkpoint::uncovered;

TEST_CASE("boxes overlap in all dimensions") {
  CHECK(overlap({{0, 0}, {4, 6}}, {{1, 2}, {9, 3}}) == Box{{1, 2}, {3, 3}});
  CHECK(overlap({{0, 0}, {4, 6}}, {{4, 0}, {1, 6}}) == std::nullopt);
  CHECK(overlap({{0}, {0}}, {{0}, {4}}) == std::nullopt);
  CHECK(overlap({{}, {}}, {{}, {}}) == Box{{}, {}});  // one element
}

TEST_CASE("the rest of a box has every other element once") {
  const Box whole{{0, 0}, {4, 6}};
  const std::vector<Box> hole{{{1, 2}, {2, 3}}};
  const auto rest = uncovered(whole, hole);
  std::int64_t elements = 0;
  for (std::size_t i = 0; i < rest.size(); ++i) {
    elements += rest[i].elements();
    CHECK_FALSE(overlap(rest[i], hole[0]));
    for (std::size_t j = 0; j < i; ++j) CHECK_FALSE(overlap(rest[i], rest[j]));
  }
  CHECK(elements == 4 * 6 - 2 * 3);
  CHECK(uncovered(whole, rest) == hole);
  CHECK(uncovered({{2, 2}, {0, 1}}, {}).empty());
}

TEST_CASE("numbers of a damaged file do not overflow") {
  constexpr auto kMost = std::numeric_limits<std::int64_t>::max();
  CHECK(overlap({{0}, {4}}, {{kMost - 1}, {kMost}}) == std::nullopt);
  CHECK(overlap({{0}, {4}}, {{2}, {kMost}}) == Box{{2}, {2}});
}

}  // namespace boxes_test
