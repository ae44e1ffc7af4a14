#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/state_file.h"
#include "trireme/value.h"

// Tensors of which each rank stored a shard, {"$shard": ...} in the tree. docs/state_format.md describes the format.

namespace trireme::checkpoint {

bool has_shards(const Value& state);

// Joins the states of all ranks into one: dicts get the keys of all ranks, tensors are assembled from all shards, and
// for anything else the first rank's value is used. An error names the incomplete tensor.
base::Result<Dict> join_shards(const std::vector<Dict>& states);

// Like load_state() for a checkpoint or a rank's folder in one, but with complete tensors: if some are sharded, the
// shards of all ranks are read.
base::Result<Dict> load_whole_state(const std::string& folder, const LoadOptions& options = {});

}  // namespace trireme::checkpoint
