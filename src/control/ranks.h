#pragma once

#include <string>
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

// Whether its devices are whole GPUs, at least one: no fraction and no MIG device. Only with these, NCCL connects
// ranks, and a process may see the devices of other ranks.
bool has_whole_gpus(const engine::Slot& slot);

// The GPUs that the process of each rank sees, by id and in this order.
//
// Shared: those of all ranks on its node, first the first GPU of each rank in the order of local ranks, so that
// `cuda:LOCAL_RANK` is a rank's own, then the others. A process cannot list a device twice, and sees one MIG device at
// most: where ranks have a fraction of a GPU or a MIG device, each sees only its own, as if not shared.
std::vector<std::vector<std::string>> visible_gpus_of(const std::vector<engine::Slot>& slots, bool share);

}  // namespace trireme::control
