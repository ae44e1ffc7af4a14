#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "base/result.h"
#include "checkpoint/manifest.h"
#include "checkpoint/mark.h"
#include "storage/files.h"
#include "trireme/value.h"

// A checkpoint is a folder in the run folder. Its files are written first, each complete and durable. The manifest,
// written last and by rename, makes the folder a checkpoint: folders without a manifest are ignored by readers.
// docs/checkpoint_format.md lists all steps and the state after a crash at each of them.

namespace trireme::checkpoint {

struct Committed {
  std::string name;
  std::string path;
  Manifest manifest;
};

// "checkpoint_000012": derived from the report, so that ranks need no agreement.
std::string default_name(std::int64_t index);

// Checks that a name stays inside the run folder: not empty, no "/", no "..", not hidden, not used by the run itself.
base::Result<void> check_name(const std::string& name);

// A file in the run folder with the id of the run's start. It proves to a worker on another host that both see the same
// storage.
inline constexpr const char* kMarkerName = ".trireme_storage_marker";

// Prepares the checkpoint's folder for files and marks it as unfinished. Several ranks may call it. A committed
// checkpoint with this name from an earlier report is replaced (see replaced.h). One from this report or a later one is
// an error: it was committed without this rank's files. Without an origin, the new checkpoint counts as the later one.
// Returns the folder.
base::Result<std::string> begin(storage::Files& files, const std::string& run_path, const std::string& name,
                                const std::optional<Origin>& origin = std::nullopt);

// Stores a rank's files in the checkpoint's folder, durably. Includes begin(). `source` is a local folder; it may be
// the checkpoint's folder itself.
base::Result<std::vector<storage::FileRecord>> upload(storage::Files& files, const std::string& source,
                                                      const std::string& run_path, const std::string& name,
                                                      storage::Take take = storage::Take::kCopy,
                                                      const std::optional<Origin>& origin = std::nullopt);

// For files written by user code that expects that the folder does not exist yet. announce() makes room like begin()
// and marks the name as unfinished next to the folder. adopt() then takes over the files in the folder, durably.
base::Result<void> announce(storage::Files& files, const std::string& run_path, const std::string& name,
                            const std::optional<Origin>& origin = std::nullopt);
base::Result<std::vector<storage::FileRecord>> adopt(storage::Files& files, const std::string& run_path,
                                                     const std::string& name,
                                                     const std::optional<Origin>& origin = std::nullopt);

// The files of all ranks as one list. `conflicts` lists paths for which ranks stored different content ("model.pt: rank
// 0, 3"). The last write wins; merge() reads the file to find out which one that is.
struct Merged {
  std::vector<storage::FileRecord> files;
  std::vector<std::string> conflicts;
};
base::Result<Merged> merge(storage::Files& files, const std::string& run_path, const std::string& name,
                           const std::map<int, std::vector<storage::FileRecord>>& by_rank);

// Checks that every file exists with its size, removes all other files and writes the manifest. Can be repeated after
// an error.
base::Result<Committed> commit(storage::Files& files, const std::string& run_path, const std::string& name,
                               Manifest manifest);
// Replaces the manifest of a committed checkpoint (metrics and status of a validation).
base::Result<void> update(storage::Files& files, const std::string& run_path, const std::string& name,
                          const Manifest& manifest);

// All checkpoints of the run with a manifest, by index. `damaged` has one sentence for each damaged manifest. Any
// process may call it at any time.
struct Listing {
  std::vector<Committed> committed;
  std::vector<std::string> damaged;
};
base::Result<Listing> list_committed(storage::Files& files, const std::string& run_path);

// The error names the first file that is missing, truncated or (with `checksums`) changed.
base::Result<void> verify(storage::Files& files, const Committed& checkpoint, bool checksums);

// Removes the checkpoint of that report, even if a new one with the same name has moved it aside, and nothing else: a
// folder in use by another report stays. Atomic for readers: a crash leaves something for remove_unfinished() to
// remove, never a partial checkpoint. Must not run concurrently with commit() or remove_unfinished().
base::Result<void> remove(storage::Files& files, const std::string& run_path, const std::string& name, Origin origin);

// Call before an attempt, while no rank writes. Removes unfinished checkpoints of the last attempt (folders with the
// mark and without a manifest, temporary files) and restores a checkpoint whose replacement was not committed. Folders
// without the mark belong to the user and stay.
base::Result<void> remove_unfinished(storage::Files& files, const std::string& run_path);

}  // namespace trireme::checkpoint
