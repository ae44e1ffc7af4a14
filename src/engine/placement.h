#pragma once

#include <map>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"

// Where the bundles of a gang go. Pure: nodes in, slots out.

namespace trireme::engine {

struct Placement {
  // The trainer's own room; it takes part in the sums but starts no process. Without a node where it needs nothing.
  Slot trainer;
  std::vector<Slot> slots;
};

// All bundles by what is available now, or nothing. Exact for equal bundles; unequal ones are laid largest first, which
// may miss a placement that exists.
std::optional<Placement> place(const GangRequest& request, const std::vector<NodeInfo>& nodes);

// The same nodes with nothing reserved: place() on them tells "never" from "not now".
std::vector<NodeInfo> emptied(std::vector<NodeInfo> nodes);

// Which share of which device a slot takes: 1 of each, or the fraction of a single one.
std::map<int, double> gpu_shares(const Slot& slot);

// "H100" matches "NVIDIA H100 80GB HBM3", in any case. An unknown type matches nothing.
bool matches_accelerator(const Gpu& gpu, const std::string& accelerator_type);

}  // namespace trireme::engine
