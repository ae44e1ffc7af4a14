#include "control/ranks.h"

#include <algorithm>
#include <map>
#include <set>
#include <string>

namespace trireme::control {

bool has_whole_gpus(const engine::Slot& slot) {
  const auto amount = slot.resources.find("GPU");
  return amount != slot.resources.end() && amount->second >= 1.0 && !slot.gpus.empty() &&
         std::none_of(slot.gpus.begin(), slot.gpus.end(), [](const std::string& id) { return id.starts_with("MIG-"); });
}

std::vector<Place> places_of(const std::vector<engine::Slot>& slots) {
  std::map<std::string, int> node_ranks;
  std::map<std::string, int> counts;
  std::vector<Place> places;
  for (const auto& slot : slots) {
    auto [node, first] = node_ranks.try_emplace(slot.node_id, static_cast<int>(node_ranks.size()));
    places.push_back({counts[slot.node_id]++, 0, node->second, 0});
  }
  for (std::size_t rank = 0; rank < slots.size(); ++rank) {
    places[rank].local_world_size = counts[slots[rank].node_id];
    places[rank].num_nodes = static_cast<int>(node_ranks.size());
  }
  return places;
}

std::vector<std::vector<std::string>> visible_gpus_of(const std::vector<engine::Slot>& slots, bool share) {
  std::map<std::string, std::vector<std::string>> by_node;
  std::set<std::string> isolated;
  for (const auto& slot : slots) {
    if (slot.gpus.empty()) continue;
    by_node[slot.node_id].push_back(slot.gpus.front());
    if (!has_whole_gpus(slot)) isolated.insert(slot.node_id);
  }
  for (const auto& slot : slots) {
    auto& list = by_node[slot.node_id];
    for (std::size_t i = 1; i < slot.gpus.size(); ++i) list.push_back(slot.gpus[i]);
  }
  std::vector<std::vector<std::string>> visible;
  for (const auto& slot : slots) {
    const bool own = !share || slot.gpus.empty() || isolated.contains(slot.node_id);
    visible.push_back(own ? slot.gpus : by_node[slot.node_id]);
  }
  return visible;
}

}  // namespace trireme::control
