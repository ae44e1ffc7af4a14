#pragma once

#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/state_file.h"
#include "trireme/value.h"

// Tensors of which every rank has stored a part, {"$shard": ...} in the tree. docs/state_format.md has the format.

namespace trireme::checkpoint {

bool has_shards(const Value& state);

// One state of those that the ranks have stored: dicts have the keys of all, tensors come together from everybody's
// parts, and of anything else the first one's counts. An error names the tensor that is not complete.
base::Result<Dict> join_shards(const std::vector<Dict>& states);

// As load_state(), of a checkpoint or the folder of a rank in one, with whole tensors: where some are in parts, those
// of all ranks are read.
base::Result<Dict> load_whole_state(const std::string& folder, const LoadOptions& options = {});

}  // namespace trireme::checkpoint
