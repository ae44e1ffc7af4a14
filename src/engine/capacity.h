#pragma once

#include <cstddef>
#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "engine/ledger.h"

// Changes the usable capacity of a machine while runs use it. Pure function: the holdings are the input, the gangs that
// must release room are the output.

namespace trireme::engine {

// Unset fields stay unchanged.
struct Capacity {
  std::optional<double> num_cpus;
  std::optional<int> num_gpus;
  Resources resources;  // by name, without CPU and GPU
};

Result<void> check_amounts(const Capacity& capacity);

// The resources of one gang of this engine, including time-shared CPUs.
struct Claim {
  Holding holding;
  bool optional = false;
};

struct Lowering {
  std::vector<std::size_t> too_much;  // optional claims that no longer fit, by index
  std::string why;                    // "capacity was lowered from 4 to 2 CPUs"; empty if nothing was lowered
};

// Fails, with the arithmetic and the options, if the new capacity is below what `others` and the non-optional claims
// hold. The oldest optional claims keep their room; `own` is ordered by age.
Result<Lowering> lower_capacity(const NodeInfo& before, const NodeInfo& after, const std::vector<Holding>& others,
                                const std::vector<Claim>& own);

}  // namespace trireme::engine
