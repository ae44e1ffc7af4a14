#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mark.h"
#include "storage/files.h"

// Handles names that are used again. The existing checkpoint is moved aside to
// {run}/.trireme_replaced/{name}/{attempt}_{index} and stays valid until the new one is committed; after a crash in
// between, it is moved back. If the storage cannot move folders (an object store), its manifest is removed instead:
// until the new checkpoint is committed, none has that name.

namespace trireme::checkpoint {

inline constexpr const char* kReplacedName = ".trireme_replaced";

struct Replaced {
  std::string name;
  std::string path;
  Manifest manifest;
};

// Both are empty if there is no manifest.
struct ManifestFile {
  std::optional<Manifest> manifest;
  std::optional<std::string> damage;  // a sentence that names the file
};
// An error if the storage fails.
base::Result<ManifestFile> read_manifest(storage::Files& files, const std::string& folder);

// After this, the folder is no longer a checkpoint, even in a crash.
base::Result<void> remove_manifest(storage::Files& files, const std::string& folder);

// Moves the checkpoint of that report, which the caller found under `name`, aside. Several ranks and the retention may
// do this at the same time: only the first one moves it. True: the name is free, or in use by a newer checkpoint.
// False: the storage cannot move folders.
base::Result<bool> set_aside(storage::Files& files, const std::string& run_path, const std::string& name,
                             Origin origin);

// Call after the new checkpoint is committed.
base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name);
// Only the checkpoint of that report, if it was moved aside. Its place stays taken until forget_dropped() or the next
// commit under that name.
base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name,
                                 Origin origin);
// Call when no rank writes any more.
base::Result<void> forget_dropped(storage::Files& files, const std::string& run_path);

// The newest checkpoint aside for every name. Ignores those that are removed during the call.
base::Result<std::vector<Replaced>> list_replaced(storage::Files& files, const std::string& run_path);

// Drops those whose name is committed and moves the others back.
base::Result<void> bring_back_replaced(storage::Files& files, const std::string& run_path);
// The path at which a checkpoint of the run is after that: it may have been aside when it was listed.
base::Result<std::string> path_after_bringing_back(storage::Files& files, const std::string& run_path,
                                                   const std::string& path);

}  // namespace trireme::checkpoint
