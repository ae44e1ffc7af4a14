#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"

// Which runs this user has on this machine, wherever their folders lie, and how to reach those that are active. One
// file per run, readable by the user alone: it holds the run's secret for as long as the run lasts.

namespace trireme::control {

#define TRIREME_RUN_ENTRY(FIELD)                                                                                      \
  FIELD(std::string, id, {}, "The run's id, which is also the name of the file.")                                     \
  FIELD(std::string, name, {}, "The run's name.")                                                                     \
  FIELD(std::string, path, {}, "The run's folder.")                                                                   \
  FIELD(std::string, host, {}, "The driver's machine; several machines may share a home directory.")                  \
  FIELD(std::string, process_table, {}, "The boot and the pid namespace that `pid` belongs to.")                      \
  FIELD(std::int64_t, pid, 0, "The driver's pid.")                                                                    \
  FIELD(std::int64_t, pid_start, 0, "When that process started, in clock ticks since boot, because pids are reused.") \
  FIELD(double, started, 0.0, "When the run started, in seconds since 1970.")                                         \
  FIELD(std::optional<std::string>, address, {}, "The controller's address; absent after the run has ended.")         \
  FIELD(std::optional<std::string>, secret, {},                                                                       \
        "The secret that peers must prove to know, in hex; absent after the run has ended.")

TRIREME_STRUCT(RunEntry, TRIREME_RUN_ENTRY)

// $TRIREME_STATE_DIR, else $XDG_STATE_HOME/trireme, else ~/.local/state/trireme; for a user without a home directory
// a folder in $TMPDIR.
std::filesystem::path state_dir();
// Makes it. An error where it is another user's: it holds what lets a peer into a run.
base::Result<void> make_state_dir(const std::filesystem::path& state = state_dir());

// Field 22 of /proc/<pid>/stat; nullopt when there is no such process.
std::optional<std::int64_t> process_start(std::int64_t pid);

// Whether the entry is of another machine, whose processes cannot be seen from here.
bool is_elsewhere(const RunEntry& entry);
// Whether the driver lives and the run is not over. Elsewhere: whether the run is not known to be over.
bool is_active(const RunEntry& entry);

class RunRegistry {
 public:
  explicit RunRegistry(const std::filesystem::path& state = state_dir()) : folder_(state / "runs") {}

  // A later entry with the same id replaces the earlier one. A reader sees one or the other, never half a file.
  base::Result<void> register_run(const RunEntry& entry) const;
  // Drops address and secret; the entry stays, so that the run can be found by its name.
  base::Result<void> finish_run(const std::string& id) const;

  // nullopt when there is no such run.
  std::optional<RunEntry> entry(const std::string& id) const;

  // The newest first. Files that are not ours to read or make no sense are passed over.
  std::vector<RunEntry> list_runs() const;

  // By id, name, folder, or the beginning of an id. A folder of a run that is not in the registry (copied from another
  // machine) is found by its path alone. Of several runs with the same name the active one is meant, if there is one.
  base::Result<RunEntry> find_run(const std::string& what) const;

  // Older runs that are over are forgotten beyond this number; their folders stay.
  static constexpr std::size_t kMaxRemembered = 1000;

 private:
  std::filesystem::path file_of(const std::string& id) const { return folder_ / (id + ".json"); }
  void forget_oldest() const;

  std::filesystem::path folder_;
};

}  // namespace trireme::control

namespace trireme::base {
TRIREME_STRUCT_FIELDS(control::RunEntry, TRIREME_RUN_ENTRY)
}  // namespace trireme::base
