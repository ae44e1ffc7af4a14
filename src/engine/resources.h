#pragma once

#include <optional>
#include <string>
#include <vector>

#include "engine/engine.h"
#include "trireme/config.h"

// Amounts of resources, those that a ScalingConfig requests, and the errors if there is not enough.

namespace trireme::engine {

// Sums of fractions are inexact: three thirds of a GPU are one.
inline constexpr double kAmountTolerance = 1e-6;

double amount_of(const Resources& resources, const std::string& name);
bool fits(const Resources& need, const Resources& available);
void add(Resources& to, const Resources& what);
// Never below zero; a remainder within the tolerance of zero is zero.
void subtract(Resources& from, const Resources& what);
// {"CPU": 2, "GPU": 0.5}, in Python syntax.
std::string to_text(const Resources& resources);

// All resources of a gang: its bundles and its trainer.
Resources sum_of(const GangRequest& request);
// Resources of one worker, without zero entries.
Resources worker_bundle(const ScalingConfig& config);
// Resources of the trainer, without zero entries.
Resources trainer_bundle(const ScalingConfig& config);

// Fails, with the arithmetic and the options, if the request would not fit on these nodes even if they were idle.
Result<void> check_capacity(const GangRequest& request, const std::vector<NodeInfo>& nodes);

// Fails if the request selects nodes by label, which only some clusters have.
Result<void> refuse_labels(const GangRequest& request);

// Set if the workers request more CPUs than the machine has and time-sharing allows it.
std::optional<std::string> oversubscription_warning(const GangRequest& request, const std::vector<NodeInfo>& nodes);

}  // namespace trireme::engine
