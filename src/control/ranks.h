#pragma once

#include <vector>

#include "engine/engine.h"

namespace trireme::control {

// The position of a rank on its node, and of its node.
struct Place {
  int local_rank = 0;
  int local_world_size = 1;
  int node_rank = 0;
  int num_nodes = 1;
  bool operator==(const Place&) const = default;
};

// Rank r runs in slot r. Nodes are numbered in order of first appearance.
std::vector<Place> places_of(const std::vector<engine::Slot>& slots);

}  // namespace trireme::control
