#pragma once

#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mark.h"
#include "storage/files.h"

// A name that is used again. The checkpoint that has it is moved aside, whole, to
// {run}/.trireme_replaced/{name}/{attempt}_{index} and counts until the new one is committed; a crash in between brings
// it back. Where the storage cannot move a folder (an object store) its manifest is removed instead: then there is
// nothing of that name until the new one is committed.

namespace trireme::checkpoint {

inline constexpr const char* kReplacedName = ".trireme_replaced";

struct Replaced {
  std::string name;
  std::string path;
  Manifest manifest;
};

// Neither where there is none.
struct ManifestFile {
  std::optional<Manifest> manifest;
  std::optional<std::string> damage;  // a sentence that names it
};
// An error where the storage does not let us know.
base::Result<ManifestFile> read_manifest(storage::Files& files, const std::string& folder);

// After this the folder is no checkpoint any more, whatever happens.
base::Result<void> remove_manifest(storage::Files& files, const std::string& folder);

// Moves the checkpoint of that report, which the caller has seen under `name`, aside. Whoever comes second, of ranks
// that make room for a new one and of the retention, finds its place there taken and moves nothing. True: the name is
// free, or somebody else has taken it since. False: the storage cannot move it.
base::Result<bool> set_aside(storage::Files& files, const std::string& run_path, const std::string& name,
                             Origin origin);

// The new one is committed.
base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name);
// The one of that report, where it is aside.
base::Result<void> drop_replaced(storage::Files& files, const std::string& run_path, const std::string& name,
                                 Origin origin);

// The newest one aside of every name. What vanishes while one looks is not there.
base::Result<std::vector<Replaced>> list_replaced(storage::Files& files, const std::string& run_path);

// Drops those whose name is committed and moves the others back.
base::Result<void> bring_back_replaced(storage::Files& files, const std::string& run_path);

}  // namespace trireme::checkpoint
