#pragma once

#include <string>

#include "trireme/export.h"
#include "trireme/value.h"

// The state of a training as files that both languages read: a tree of dicts and lists with tensors, numbers and text.
// Python's trireme.save_state() and trireme.load_state() are the same functions; docs/state_format.md has the format.

namespace trireme {

struct LoadStateOptions {
  // Tensors are read when they are looked at. Without it the whole file is read at once: for files that somebody may
  // cut off while they are in use.
  bool map = true;
};

// Writes the state into the folder, which is made where it is absent, and returns when it would survive a crash of the
// machine. A state that is there is replaced; other files stay. Throws std::runtime_error that says what and where.
TRIREME_API void save_state(const std::string& folder, const Dict& state);

// Of a folder, for example a checkpoint's, or of a .safetensors file, which comes as a flat dict. Tensors are views of
// the file's content; writing to them does not change the file. In the folder of a checkpoint, the files are compared
// with the checksums of its manifest. Throws std::runtime_error that names the file that is not there or damaged.
TRIREME_API Dict load_state(const std::string& path, const LoadStateOptions& options = {});

}  // namespace trireme
