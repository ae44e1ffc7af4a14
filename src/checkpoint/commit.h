#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "trireme/value.h"

// A checkpoint is a folder of the run. Its files come first; the manifest, written last and by rename, is what makes it
// one: a folder without a manifest is nothing yet, and nobody reads it. docs/run_folder.md has the format.

namespace trireme::checkpoint {

inline constexpr const char* kManifestName = ".trireme_manifest.json";

struct Committed {
  std::int64_t index = 0;
  std::string name;
  std::string path;
  Metrics metrics;
};

// "checkpoint_000012": derived from the report, so that ranks need not agree on it.
std::string default_name(std::int64_t index);

// A name that stays inside the run folder: not empty, no "/", no "..", not hidden.
base::Result<void> check_name(const std::string& name);

// Copies a rank's files into the checkpoint's folder and makes them durable.
base::Result<void> upload(const std::string& source, const std::string& run_path, const std::string& name);

base::Result<Committed> commit(const std::string& run_path, const std::string& name, std::int64_t index,
                               const Metrics& metrics);

// All checkpoints of the run with a manifest, by index. A manifest that cannot be read is an error that names it.
base::Result<std::vector<Committed>> list_committed(const std::string& run_path);

// What an attempt that failed has left half-written: folders named like checkpoints and without a manifest.
base::Result<void> remove_unfinished(const std::string& run_path);

}  // namespace trireme::checkpoint
