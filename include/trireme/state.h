#pragma once

#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

// Training state as files that both languages read: a tree of dicts and lists with tensors, numbers and strings.
// Python's trireme.save_state() and trireme.load_state() are the same functions. docs/state_format.md describes the
// format.

namespace trireme {

struct LoadStateOptions {
  // Maps the file, so that tensors are read on access. False: reads the complete file at once; use it for files that
  // another process may truncate while they are in use.
  bool map = true;
};

// Writes the state into the folder, which is created if necessary, and returns once it is durable. Replaces an existing
// state; keeps other files. Throws std::runtime_error with the problem and the path.
TRIREME_API void save_state(const std::string& folder, const Dict& state);

// Reads a folder, such as a checkpoint's, or a .safetensors file, which is returned as a flat dict. Tensors are views
// of the file's content; writing to them does not change the file. In a checkpoint's folder, the files are compared
// with the checksums in its manifest. Throws std::runtime_error that names the missing or damaged file.
TRIREME_API Dict load_state(const std::string& path, const LoadStateOptions& options = {});

}  // namespace trireme
