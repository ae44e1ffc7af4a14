#include "engine/placement.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <functional>
#include <random>

namespace placement_test {

using namespace trireme;
using namespace trireme::engine;

namespace {

NodeInfo node(const std::string& id, double cpus, int gpus = 0, const std::string& type = "NVIDIA A100") {
  NodeInfo info{
      .id = id, .host = "host-" + id, .total = {{"CPU", cpus}}, .available = {}, .gpus = {}, .cpus_declared = true};
  for (int i = 0; i < gpus; ++i) info.gpus.push_back({.id = std::to_string(i), .type = type});
  if (gpus > 0) info.total["GPU"] = gpus;
  info.available = info.total;
  return info;
}

GangRequest gang(int workers, Resources bundle, Strategy strategy = Strategy::kPack) {
  GangRequest request;
  request.bundles.assign(static_cast<std::size_t>(workers), bundle);
  request.strategy = strategy;
  return request;
}

// "a a b" for three slots, "-" without a placement.
std::string nodes_of(const std::optional<Placement>& placement) {
  if (!placement) return "-";
  std::string text;
  for (const auto& slot : placement->slots) text += (text.empty() ? "" : " ") + slot.node_id;
  return text;
}

std::vector<std::vector<int>> gpus_of(const std::optional<Placement>& placement) {
  std::vector<std::vector<int>> gpus;
  if (placement) {
    for (const auto& slot : placement->slots) {
      auto& indexes = gpus.emplace_back();
      for (const auto& id : slot.gpus) indexes.push_back(std::stoi(id));
    }
  }
  return gpus;
}

}  // namespace

TEST_CASE("strategies over nodes") {
  struct Row {
    Strategy strategy;
    int workers;
    Resources bundle;
    std::vector<NodeInfo> nodes;
    std::string expected;
  };
  const std::vector<NodeInfo> three = {node("a", 2), node("b", 4), node("c", 2)};
  const std::vector<Row> rows = {
      {Strategy::kPack, 2, {{"CPU", 1}}, three, "a a"},
      {Strategy::kPack, 4, {{"CPU", 1}}, three, "b b b b"},
      {Strategy::kPack, 6, {{"CPU", 1}}, three, "b b b b a a"},
      {Strategy::kPack, 9, {{"CPU", 1}}, three, "-"},
      {Strategy::kPack, 1, {{"CPU", 5}}, three, "-"},
      {Strategy::kStrictPack, 4, {{"CPU", 1}}, three, "b b b b"},
      {Strategy::kStrictPack, 5, {{"CPU", 1}}, three, "-"},
      {Strategy::kSpread, 3, {{"CPU", 1}}, three, "a b c"},
      {Strategy::kSpread, 5, {{"CPU", 1}}, three, "a a b b c"},
      {Strategy::kSpread, 8, {{"CPU", 1}}, three, "a a b b b b c c"},
      {Strategy::kSpread, 9, {{"CPU", 1}}, three, "-"},
      {Strategy::kStrictSpread, 3, {{"CPU", 2}}, three, "a b c"},
      {Strategy::kStrictSpread, 2, {{"CPU", 2}}, three, "a b"},
      {Strategy::kStrictSpread, 4, {{"CPU", 1}}, three, "-"},
      {Strategy::kPack, 0, {}, three, ""},
      {Strategy::kPack, 1, {{"CPU", 1}}, {}, "-"},
  };
  for (const auto& row : rows) {
    CAPTURE(std::string(to_string(row.strategy)));
    CAPTURE(row.workers);
    CHECK(nodes_of(place(gang(row.workers, row.bundle, row.strategy), row.nodes)) == row.expected);
  }
}

namespace {

// Every node is filled for every bundle that is left, one at a time: slow, and obviously right.
std::optional<std::vector<std::string>> filled_one_by_one(const std::vector<double>& bundles,
                                                          std::vector<double> free) {
  std::vector<double> left = bundles;
  std::stable_sort(left.begin(), left.end(), std::greater<>());
  std::vector<bool> used(free.size());
  std::vector<std::string> nodes;
  while (!left.empty()) {
    std::size_t best = free.size();
    std::vector<double> most;
    for (std::size_t node = 0; node < free.size(); ++node) {
      double room = free[node];
      std::vector<double> fitting;
      for (const double bundle : left) {
        if (used[node] || bundle > room) continue;
        room -= bundle;
        fitting.push_back(bundle);
      }
      if (fitting.size() > most.size()) {
        best = node;
        most = std::move(fitting);
      }
    }
    if (best == free.size()) return std::nullopt;
    used[best] = true;
    for (const double bundle : most) {
      left.erase(std::find(left.begin(), left.end(), bundle));
      nodes.push_back(std::to_string(best));
    }
  }
  return nodes;
}

}  // namespace

TEST_CASE("random gangs are packed as if each node were tried for each bundle") {
  std::mt19937 random(17);
  int placed = 0;
  for (int round = 0; round < 2000; ++round) {
    std::vector<NodeInfo> nodes;
    std::vector<double> free;
    for (std::size_t i = 0, count = 1 + random() % 6; i < count; ++i) {
      free.push_back(static_cast<double>(random() % 9));
      nodes.push_back(node(std::to_string(i), free.back()));
    }
    GangRequest request;
    std::vector<double> bundles;
    for (std::size_t i = 0, count = 1 + random() % 12; i < count; ++i) {
      bundles.push_back(static_cast<double>(1 + random() % (round % 3 == 0 ? 1 : 4)));
      request.bundles.push_back({{"CPU", bundles.back()}});
    }
    const auto placement = place(request, nodes);
    const auto expected = filled_one_by_one(bundles, free);
    REQUIRE(placement.has_value() == expected.has_value());
    if (!placement) continue;
    ++placed;
    std::string text;
    for (const auto& each : *expected) text += (text.empty() ? "" : " ") + each;
    REQUIRE(nodes_of(placement) == text);
  }
  CHECK(placed > 500);
}

TEST_CASE("8 workers with half a GPU each share 4 devices in pairs") {
  const auto placement = place(gang(8, {{"CPU", 4}, {"GPU", 0.5}}), {node("a", 32, 4)});
  CHECK(gpus_of(placement) == std::vector<std::vector<int>>{{0}, {0}, {1}, {1}, {2}, {2}, {3}, {3}});
  CHECK(gpu_shares(placement->slots.front()) == std::map<std::string, double>{{"0", 0.5}});
  CHECK_FALSE(place(gang(9, {{"GPU", 0.5}}), {node("a", 32, 4)}));
}

TEST_CASE("GPU amounts on devices") {
  const auto three_left = [] {
    auto info = node("a", 8, 4);
    info.gpus[1].available = 0.0;
    info.gpus[2].available = 0.5;
    return info;
  }();
  struct Row {
    int workers;
    double gpus;
    std::vector<std::vector<int>> expected;
  };
  const std::vector<Row> rows = {
      {1, 2.0, {{0, 3}}},    // only 0 and 3 are completely free
      {1, 3.0, {}},          // 2.5 are left, but not three devices
      {1, 0.5, {{2}}},       // the device that is already shared
      {2, 0.4, {{2}, {0}}},  // 0.1 of device 2 is left after the first
      {1, 0.6, {{0}}},       // never split over 2 and another
      {1, 1.5, {}},          // invalid amount
      {3, 1.0 / 3.0, {{2}, {0}, {0}}},
      {6, 1.0 / 3.0, {{2}, {0}, {0}, {0}, {3}, {3}}},  // three thirds are one device
  };
  for (const auto& row : rows) {
    CAPTURE(row.gpus);
    CHECK(gpus_of(place(gang(row.workers, {{"GPU", row.gpus}}), {three_left})) == row.expected);
  }
  CHECK(gpus_of(place(gang(1, {{"GPU", 3}}), emptied({three_left}))) == std::vector<std::vector<int>>{{0, 1, 2}});
}

TEST_CASE("accelerator_type chooses nodes and devices by type") {
  auto request = gang(2, {{"GPU", 1}});
  request.accelerator_type = "h100";
  const std::vector<NodeInfo> nodes = {node("a", 8, 4), node("b", 8, 2, "NVIDIA H100 80GB HBM3"), node("c", 8, 2, "")};
  CHECK(nodes_of(place(request, nodes)) == "b b");
  auto mixed = node("m", 8, 3);
  mixed.gpus[2].type = "NVIDIA H100";
  request.bundles.resize(1);
  CHECK(gpus_of(place(request, {mixed})) == std::vector<std::vector<int>>{{2}});
  CHECK_FALSE(place(request, {node("c", 8, 2, "")}));
}

TEST_CASE("the trainer takes room in addition to the workers, on any node that has enough left") {
  auto request = gang(2, {{"CPU", 4}});
  request.trainer = {{"CPU", 1}};
  CHECK_FALSE(place(request, {node("a", 8)}));
  const auto placement = place(request, {node("a", 8), node("b", 1)});
  REQUIRE(placement);
  CHECK(placement->trainer.node_id == "b");
  CHECK(nodes_of(placement) == "a a");
}

TEST_CASE("unequal bundles: largest first, and each slot identifies its bundle") {
  GangRequest request;
  request.bundles = {{{"CPU", 1}}, {{"CPU", 3}}, {{"CPU", 2}}};
  const auto placement = place(request, {node("a", 3), node("b", 3)});
  REQUIRE(placement);
  REQUIRE(placement->slots.size() == 3);
  CHECK(nodes_of(placement) == "a b b");
  CHECK(placement->slots[0].resources == Resources{{"CPU", 3}});
  CHECK(placement->slots[1].resources == Resources{{"CPU", 1}});
  CHECK(placement->slots[2].resources == Resources{{"CPU", 2}});
}

TEST_CASE("undeclared CPUs never limit; reservations of others do") {
  auto shared = node("a", 2);
  shared.cpus_declared = false;
  CHECK(nodes_of(place(gang(5, {{"CPU", 4}}), {shared})) == "a a a a a");
  auto held = node("a", 8);
  held.available["CPU"] = 3;
  CHECK_FALSE(place(gang(4, {{"CPU", 1}}), {held}));
  CHECK(place(gang(4, {{"CPU", 1}}), emptied({held})).has_value());
}

}  // namespace placement_test
