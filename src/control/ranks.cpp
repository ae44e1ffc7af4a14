#include "control/ranks.h"

#include <map>
#include <string>

namespace trireme::control {

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

}  // namespace trireme::control
