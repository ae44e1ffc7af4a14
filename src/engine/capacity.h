#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/ledger.h"

// How much of a machine may be used, changed while runs use it. Pure: who holds what goes in, who has to make room
// comes out.

namespace trireme::engine {

// What is not given stays as it is.
struct Capacity {
  std::optional<double> num_cpus;
  std::optional<int> num_gpus;
  Resources resources;  // by name, without CPU and GPU
};

Result<void> check_amounts(const Capacity& capacity);

// What a gang of this engine takes, time-shared CPUs included.
struct Claim {
  Holding holding;
  bool optional = false;
};

struct Lowering {
  std::vector<std::size_t> too_much;  // optional claims that no longer fit, by index
  std::string why;                    // "capacity was lowered from 4 to 2 CPUs"; empty where nothing was
};

// Refuses, with the arithmetic and the ways out, less than what `others` and the claims that are not optional hold. Of
// the optional ones the oldest stay; `own` is in the order of age.
Result<Lowering> lower_capacity(const NodeInfo& before, const NodeInfo& after, const std::vector<Holding>& others,
                                const std::vector<Claim>& own);

}  // namespace trireme::engine
