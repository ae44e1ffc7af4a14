#include "control/ranks.h"

#include <doctest/doctest.h>

namespace ranks_test {

using namespace trireme;
using namespace trireme::control;

namespace {

std::vector<Place> places(const std::vector<std::string>& nodes) {
  std::vector<engine::Slot> slots;
  for (const auto& node : nodes) slots.push_back({node, "host-" + node, {}, {}});
  return places_of(slots);
}

}  // namespace

TEST_CASE("local ranks and node ranks") {
  CHECK(places({}).empty());
  CHECK(places({"a"}) == std::vector<Place>{{0, 1, 0, 1}});
  CHECK(places({"a", "a", "a"}) == std::vector<Place>{{0, 3, 0, 1}, {1, 3, 0, 1}, {2, 3, 0, 1}});
  CHECK(places({"b", "b", "a"}) == std::vector<Place>{{0, 2, 0, 2}, {1, 2, 0, 2}, {0, 1, 1, 2}});
  // Not adjacent, which no engine of ours does; the numbers are still correct.
  CHECK(places({"a", "b", "a"}) == std::vector<Place>{{0, 2, 0, 2}, {0, 1, 1, 2}, {1, 2, 0, 2}});
}

}  // namespace ranks_test
