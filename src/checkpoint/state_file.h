#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/durable_files.h"
#include "storage/files.h"
#include "trireme/value.h"

// A state in a folder: state.safetensors has its tensors, state.json the rest. docs/state_format.md has the format.

namespace trireme::checkpoint {

inline constexpr const char* kTensorsName = "state.safetensors";
inline constexpr const char* kTreeName = "state.json";

// Replaces the state that the folder may have; its other files stay. The records' paths are relative to the folder.
// Nobody may write to the tensors meanwhile.
base::Result<std::vector<storage::FileRecord>> save_state(const std::string& folder, const Dict& state,
                                                          const SaveOptions& options = {});

struct LoadOptions {
  bool map = true;  // tensors are read when they are looked at; writing to them never changes the file
  bool verify = true;
  std::map<std::string, std::string> elsewhere =
      {};  // by name: files that are opened at another path, one in memory say
  // What the files must be. The manifest tells where this does not: the one of the folder or, for a folder rank_<r>,
  // the one of the folder above. Without either nothing is compared.
  std::optional<std::vector<storage::FileRecord>> expected = {};
};

// The part of a rank in a checkpoint: rank_3.
bool is_rank_folder(const std::filesystem::path& folder);
// Those in a checkpoint, by rank.
base::Result<std::vector<std::filesystem::path>> rank_folders(const std::filesystem::path& checkpoint);

// A file that differs from what was committed is an error that names it.
base::Result<Dict> load_state(const std::string& folder, const LoadOptions& options = {});

// The tensors of any safetensors file, by name.
base::Result<Dict> load_safetensors(const std::string& path, const LoadOptions& options = {});

}  // namespace trireme::checkpoint
