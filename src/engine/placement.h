#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

// Places the bundles of a gang. Pure function: nodes in, slots out.

namespace trireme::engine {

struct Placement {
  // The room of the trainer. It is counted but starts no process. Has no node if the trainer needs nothing.
  Slot trainer;
  std::vector<Slot> slots;
};

// Places all bundles in the available room, or none. Exact for equal bundles. Unequal bundles are placed largest first,
// which may miss a possible placement.
std::optional<Placement> place(const GangRequest& request, const std::vector<NodeInfo>& nodes);

// The same nodes with nothing reserved: place() on them distinguishes "never" from "not now".
std::vector<NodeInfo> emptied(std::vector<NodeInfo> nodes);

// The share of each device that a slot uses, by its id: 1 of each, or a fraction of a single one.
std::map<std::string, double> gpu_shares(const Slot& slot);

// "H100" matches "NVIDIA H100 80GB HBM3", ignoring case. An unknown type matches nothing.
bool matches_accelerator(const Gpu& gpu, const std::string& accelerator_type);

}  // namespace trireme::engine
