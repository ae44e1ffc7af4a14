#pragma once

#include <string>

#include "trireme/torch/tensor.h"
#include "trireme/value.h"

// The values of an optimizer's state in a checkpoint.

namespace trireme::torch::detail {

// In Python, some numbers start as numbers and become tensors.
inline double stored_number(const Value& value) {
  if (const auto* tensor = value.get_if<Tensor>()) return to_torch(*tensor).item<double>();
  return value.as_double();
}

// `place` is where `from` is in the checkpoint.
inline const Value& stored_value(const Dict& from, const std::string& place, const char* name) {
  if (const Value* found = from.find(name)) return *found;
  throw ValueError(place + " has no \"" + name + "\": the checkpoint is from a different kind of optimizer");
}

}  // namespace trireme::torch::detail
