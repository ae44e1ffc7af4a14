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

using Lists = std::vector<std::vector<std::string>>;

engine::Slot with_gpus(const std::string& node, std::vector<std::string> gpus, double amount = 0) {
  if (amount == 0) amount = static_cast<double>(gpus.size());
  return {node, "host-" + node, {{"GPU", amount}}, std::move(gpus)};
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

TEST_CASE("with shared GPUs, device LOCAL_RANK is a rank's own; without, device 0 is") {
  struct Row {
    std::string what;
    std::vector<engine::Slot> slots;
    Lists shared;
    Lists isolated;
  };
  const std::vector<Row> rows = {
      {"no GPUs", {{"a", "host", {}, {}}}, {{}}, {{}}},
      {"one each",
       {with_gpus("a", {"2"}), with_gpus("a", {"0"}), with_gpus("a", {"1"})},
       {{"2", "0", "1"}, {"2", "0", "1"}, {"2", "0", "1"}},
       {{"2"}, {"0"}, {"1"}}},
      {"two each",
       {with_gpus("a", {"0", "1"}), with_gpus("a", {"2", "3"})},
       {{"0", "2", "1", "3"}, {"0", "2", "1", "3"}},
       {{"0", "1"}, {"2", "3"}}},
      {"two nodes",
       {with_gpus("b", {"0"}), with_gpus("b", {"1"}), with_gpus("a", {"0"})},
       {{"0", "1"}, {"0", "1"}, {"0"}},
       {{"0"}, {"1"}, {"0"}}},
      {"UUIDs",
       {with_gpus("a", {"GPU-x"}), with_gpus("a", {"GPU-y"})},
       {{"GPU-x", "GPU-y"}, {"GPU-x", "GPU-y"}},
       {{"GPU-x"}, {"GPU-y"}}},
      // A list with one device twice is invalid.
      {"fractions",
       {with_gpus("a", {"0"}, 0.5), with_gpus("a", {"0"}, 0.5), with_gpus("a", {"1"}, 0.5)},
       {{"0"}, {"0"}, {"1"}},
       {{"0"}, {"0"}, {"1"}}},
      // A process sees at most one MIG device.
      {"MIG",
       {with_gpus("a", {"MIG-1"}), with_gpus("a", {"MIG-2"}), with_gpus("b", {"0"}), with_gpus("b", {"1"})},
       {{"MIG-1"}, {"MIG-2"}, {"0", "1"}, {"0", "1"}},
       {{"MIG-1"}, {"MIG-2"}, {"0"}, {"1"}}},
  };
  for (const auto& row : rows) {
    CAPTURE(row.what);
    CHECK(visible_gpus_of(row.slots, true) == row.shared);
    CHECK(visible_gpus_of(row.slots, false) == row.isolated);
  }
}

TEST_CASE("fractions of GPUs and MIG devices are no whole GPUs") {
  CHECK(has_whole_gpus(with_gpus("a", {"0"})));
  CHECK(has_whole_gpus(with_gpus("a", {"GPU-x", "GPU-y"})));
  CHECK_FALSE(has_whole_gpus(with_gpus("a", {"0"}, 0.5)));
  CHECK_FALSE(has_whole_gpus(with_gpus("a", {"MIG-1"})));
  CHECK_FALSE(has_whole_gpus({"a", "host-a", {{"CPU", 1}}, {}}));
}

}  // namespace ranks_test
