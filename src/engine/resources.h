#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "trireme/config.h"

// Amounts of resources, what a ScalingConfig asks for in them, and what is said when there is not enough.

namespace trireme::engine {

// Sums of fractions are not exact: three thirds of a GPU are one.
inline constexpr double kAmountTolerance = 1e-6;

double amount_of(const Resources& resources, const std::string& name);
bool fits(const Resources& need, const Resources& available);
void add(Resources& to, const Resources& what);
// Never below zero; a remainder within the tolerance of zero is zero.
void subtract(Resources& from, const Resources& what);
// {"CPU": 2, "GPU": 0.5}, as one writes it in Python.
std::string to_text(const Resources& resources);

// All that a gang takes: its bundles and its trainer.
Resources sum_of(const GangRequest& request);
// What one worker takes, without zero entries.
Resources worker_bundle(const ScalingConfig& config);
// What the trainer itself takes, without zero entries.
Resources trainer_bundle(const ScalingConfig& config);

// Refuses, with the arithmetic and the ways out, what would not fit on these nodes even if nobody else used them.
Result<void> check_capacity(const GangRequest& request, const std::vector<NodeInfo>& nodes);

// Set when the workers ask for more CPUs than there are and only time-sharing makes room for them.
std::optional<std::string> oversubscription_warning(const GangRequest& request, const std::vector<NodeInfo>& nodes);

}  // namespace trireme::engine
