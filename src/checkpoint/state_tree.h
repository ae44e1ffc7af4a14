#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "trireme/value.h"

// A state is a tree. Its tensors are stored separately, named after their path in the tree; the rest is JSON.
// docs/state_format.md describes the format.

namespace trireme::checkpoint {

// A key in the metadata of the safetensors file.
inline constexpr const char* kVersionKey = "trireme_state";
inline constexpr const char* kVersion = "1";

// The two files of a state, before the tensors are copied.
struct StateLayout {
  Layout tensors;
  std::string tree;
};
base::Result<StateLayout> lay_out(const Dict& state);

using FindTensor = std::function<base::Result<Tensor>(const std::string& name)>;
base::Result<Dict> decode_state(std::string_view json, const FindTensor& find);

}  // namespace trireme::checkpoint
