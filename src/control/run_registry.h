#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/fields.h"
#include "base/result.h"

// The runs of this user on this machine, and how to connect to the active ones. One file per run, readable by the user
// alone, because it contains the run's secret while the run is active.

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
// Creates it. Fails if another user owns it, because it contains the secrets of runs.
base::Result<void> make_state_dir(const std::filesystem::path& state = state_dir());

// Field 22 of /proc/<pid>/stat; nullopt if there is no such process.
std::optional<std::int64_t> process_start(std::int64_t pid);

// Whether the run is on another machine, whose processes are not visible here.
bool is_elsewhere(const RunEntry& entry);
// Whether the driver is alive and the run has not ended. On another machine: whether the run is not known to have
// ended.
bool is_active(const RunEntry& entry);

class RunRegistry {
 public:
  explicit RunRegistry(const std::filesystem::path& state = state_dir()) : folder_(state / "runs") {}

  // Replaces an earlier entry with the same id, atomically for readers.
  base::Result<void> register_run(const RunEntry& entry) const;
  // Removes address and secret; the entry stays, so that the run can be found by name.
  base::Result<void> finish_run(const std::string& id) const;

  // nullopt if there is no such run.
  std::optional<RunEntry> entry(const std::string& id) const;

  // Newest first. Unreadable and invalid files are skipped.
  std::vector<RunEntry> list_runs() const;

  // Finds a run by id, name, folder, or prefix of an id. The folder of a run that is not in the registry (copied from
  // another machine) is found by its path. Of several runs with the same name the active one is returned, if there is
  // one.
  base::Result<RunEntry> find_run(const std::string& what) const;

  // Beyond this number the oldest runs that have ended are removed; their folders stay.
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
