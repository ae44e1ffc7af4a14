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

// A state in a folder: tensors in state.safetensors, the rest in state.json. docs/state_format.md describes the format.

namespace trireme::checkpoint {

inline constexpr const char* kTensorsName = "state.safetensors";
inline constexpr const char* kTreeName = "state.json";

// Replaces an existing state; keeps other files. The paths of the records are relative to the folder. The tensors must
// not be written during the call.
base::Result<std::vector<storage::FileRecord>> save_state(const std::string& folder, const Dict& state,
                                                          const SaveOptions& options = {});

struct LoadOptions {
  bool map = true;  // reads tensors on access; writing to them never changes the file
  bool verify = true;
  std::map<std::string, std::string> elsewhere = {};  // by name: files to open at another path, such as in memory
  // The expected files. Default: from the manifest of the folder or, for a folder rank_<r>, of its parent. Without a
  // manifest, nothing is compared.
  std::optional<std::vector<storage::FileRecord>> expected = {};
};

// Whether the folder is a rank's part of a checkpoint: rank_3.
bool is_rank_folder(const std::filesystem::path& folder);
// The rank folders of a checkpoint, by rank.
base::Result<std::vector<std::filesystem::path>> rank_folders(const std::filesystem::path& checkpoint);

// A file that differs from the committed one is an error that names it.
base::Result<Dict> load_state(const std::string& folder, const LoadOptions& options = {});

// The tensors of any safetensors file, by name.
base::Result<Dict> load_safetensors(const std::string& path, const LoadOptions& options = {});

}  // namespace trireme::checkpoint
