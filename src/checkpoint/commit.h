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

// A checkpoint is a folder of the run. Its files come first, each whole and durable; the manifest, written last and by
// rename, is what makes it one: a folder without a manifest is nothing yet, and nobody reads it. The order of all steps
// and what a crash leaves after each is in docs/checkpoint_format.md.

namespace trireme::checkpoint {

struct Committed {
  std::string name;
  std::string path;
  Manifest manifest;
};

// "checkpoint_000012": derived from the report, so that ranks need not agree on it.
std::string default_name(std::int64_t index);

// A name that stays inside the run folder: not empty, no "/", no "..", not hidden, not one of the run's own.
base::Result<void> check_name(const std::string& name);

// In the run's folder, with the id of the run's start: proves to a worker elsewhere that it sees the same storage.
inline constexpr const char* kMarkerName = ".trireme_storage_marker";

// Makes the checkpoint's folder ready to take files and marks it unfinished. Safe to call by several ranks. A committed
// checkpoint of that name from an earlier report makes room (see replaced.h); one from this report or a later one is an
// error: it was committed without this rank's files. Without an origin the new one is the later one. Returns the
// folder.
base::Result<std::string> begin(storage::Files& files, const std::string& run_path, const std::string& name,
                                const std::optional<Origin>& origin = std::nullopt);

// Takes a rank's files into the checkpoint's folder, durably. Begins it too. `source` is a folder of this machine; it
// may be the checkpoint's folder itself.
base::Result<std::vector<storage::FileRecord>> upload(storage::Files& files, const std::string& source,
                                                      const std::string& run_path, const std::string& name,
                                                      storage::Take take = storage::Take::kCopy,
                                                      const std::optional<Origin>& origin = std::nullopt);

// For files that somebody else writes, who expects that the folder does not exist yet. announce() makes room as begin()
// does and marks the name unfinished beside the folder; adopt() takes over what is in the folder then, durably.
base::Result<void> announce(storage::Files& files, const std::string& run_path, const std::string& name,
                            const std::optional<Origin>& origin = std::nullopt);
base::Result<std::vector<storage::FileRecord>> adopt(storage::Files& files, const std::string& run_path,
                                                     const std::string& name,
                                                     const std::optional<Origin>& origin = std::nullopt);

// What several ranks have stored, as one list. Ranks that wrote different content to the same path are told apart in
// `conflicts` ("model.pt: rank 0, 3"): the last one stands, and commit() must read which one that is.
struct Merged {
  std::vector<storage::FileRecord> files;
  std::vector<std::string> conflicts;
};
base::Result<Merged> merge(storage::Files& files, const std::string& run_path, const std::string& name,
                           const std::map<int, std::vector<storage::FileRecord>>& by_rank);

// Checks that every file is there with its size, removes what else lies there, then writes the manifest. After an error
// it can be called again.
base::Result<Committed> commit(storage::Files& files, const std::string& run_path, const std::string& name,
                               Manifest manifest);
// Replaces the manifest of a committed checkpoint (metrics and status of a validation).
base::Result<void> update(storage::Files& files, const std::string& run_path, const std::string& name,
                          const Manifest& manifest);

// All checkpoints of the run with a manifest, by index. Damaged manifests are told in `damaged`, one sentence each. May
// be called by any process at any moment.
struct Listing {
  std::vector<Committed> committed;
  std::vector<std::string> damaged;
};
base::Result<Listing> list_committed(storage::Files& files, const std::string& run_path);

// An error names the first file that is missing, too short or (with `checksums`) changed.
base::Result<void> verify(storage::Files& files, const Committed& checkpoint, bool checksums);

// Removes the checkpoint of that report, wherever a new one of the same name has moved it, and nothing else: a folder
// that another report has begun to write, or has written, stays. In one step to every reader: a crash in between leaves
// something that remove_unfinished() removes, never half a checkpoint. Not beside commit() and remove_unfinished().
base::Result<void> remove(storage::Files& files, const std::string& run_path, const std::string& name, Origin origin);

// Before an attempt, when nobody writes: removes what the last one has left half-written (folders with the mark and
// without a manifest, temporary files) and brings a checkpoint back whose replacement was not committed. Folders
// without the mark are the user's and stay.
base::Result<void> remove_unfinished(storage::Files& files, const std::string& run_path);

}  // namespace trireme::checkpoint
