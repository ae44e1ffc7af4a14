#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "checkpoint/safetensors.h"
#include "trireme/value.h"

// A state is a tree. Its tensors are taken out of it, each under the name of its place, and what remains is JSON.
// docs/state_format.md has the format.

namespace trireme::checkpoint {

// In the metadata of the safetensors file.
inline constexpr const char* kVersionKey = "trireme_state";
inline constexpr const char* kVersion = "1";

// The two files of a state, before a byte of the tensors is copied.
struct StateLayout {
  Layout tensors;
  std::string tree;
};
base::Result<StateLayout> lay_out(const Dict& state);

using FindTensor = std::function<base::Result<Tensor>(const std::string& name)>;
base::Result<Dict> decode_state(std::string_view json, const FindTensor& find);

}  // namespace trireme::checkpoint
