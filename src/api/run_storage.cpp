#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>

#include <chrono>
#include <cstdlib>
#include <filesystem>
#include <thread>

#include "api/run.h"
#include "base/config_fields.h"
#include "base/dict_fields.h"
#include "base/json.h"
#include "base/log.h"
#include "checkpoint/replaced.h"
#include "control/run_folder.h"
#include "storage/local_files.h"
#include "storage/open_files.h"
#include "storage/paths.h"
#include "storage/run_names.h"

// The folder of a run, and what it resumes from.

namespace trireme::api {
namespace {

namespace fs = std::filesystem;

// A process that a driver has just started holds a copy of its lock until it executes its program, also if the driver
// is killed in that moment. On a busy machine this takes a while.
constexpr std::chrono::seconds kLockPatience{3};
constexpr std::chrono::milliseconds kLockPause{20};

base::Result<std::string> expand_home(const std::string& path) {
  if (path != "~" && !path.starts_with("~/")) return path;
  const char* home = std::getenv("HOME");
  if (!home) return base::error("RunConfig.storage_path = '{}': $HOME is not set; give an absolute path", path);
  return home + path.substr(1);
}

// The local folder of a run with remote storage: its event log and its workers' logs.
fs::path mirror_folder(const std::string& uri, const std::string& name) {
  std::string readable;
  for (char c : uri) readable += std::isalnum(static_cast<unsigned char>(c)) ? c : '_';
  return control::state_dir() / "mirror" /
         fmt::format("{}-{:08x}", readable, std::hash<std::string>{}(uri)&0xffffffff) / name;
}

// Creates the folder, so that two runs that start in the same second get different names.
base::Result<std::string> make_dated_folder(const std::string& storage, double wall) {
  const std::string dated = "trireme_run-" + base::timestamp_name(wall);
  std::string name = dated;
  for (int i = 2;; ++i) {
    std::error_code failure;
    if (fs::create_directory(fs::path(storage) / name, failure)) return name;
    if (failure) {
      return base::system_error(fmt::format("RunConfig.storage_path = '{}' cannot be written", storage),
                                failure.value());
    }
    name = fmt::format("{}-{}", dated, i);
  }
}

// A later start of the same run continues the count of attempts, so that it does not append to earlier logs.
base::Result<int> next_attempt(const std::string& run_path, bool logs_are_here) {
  int next = 0;
  for (const auto& file : control::log_files(run_path)) next = std::max(next, file.attempt + 1);
  if (logs_are_here || !control::is_run_folder(run_path)) return next;
  TRIREME_ASSIGN(auto record, control::read_run(run_path));
  for (const auto& event : record.events) {
    if (base::text_of(event, "event") != "attempt_started") continue;
    next = std::max(next, static_cast<int>(base::int_of(event, "attempt")) + 1);
  }
  return next;
}

// Empty for a folder that the user made: it has no manifest.
Dict positions_in(const std::string& checkpoint) {
  storage::LocalFiles files;
  auto read = checkpoint::read_manifest(files, checkpoint);
  return read && read->manifest ? std::move(read->manifest->positions) : Dict();
}

}  // namespace

base::Result<void> Run::plan_folder() {
  std::string storage = spec_.storage_path;
  if (!plan_.files) {
    TRIREME_ASSIGN(auto asked, expand_home(spec_.run.storage_path.value_or(control::results_dir())));
    TRIREME_ASSIGN(plan_.files, storage::open_files(asked, storage));
    if (!plan_.files->local()) plan_.storage_uri = asked;
  }
  TRIREME_TRY(plan_.files->local() ? plan_local_folder(fs::absolute(storage).lexically_normal())
                                   : plan_remote_folder(storage));
  plan_.gang.run_name = plan_.name;
  TRIREME_TRY(plan_.files->write_atomically(plan_.storage_path + "/" + checkpoint::kMarkerName, plan_.id),
              "RunConfig.storage_path = '{}' cannot be written", plan_.files->describe(storage));
  return {};
}

base::Result<void> Run::plan_local_folder(const std::string& storage) {
  TRIREME_TRY(storage::make_folder(storage), "RunConfig.storage_path = '{}' cannot be used", storage);
  TRIREME_ASSIGN(plan_.name, spec_.run.name ? base::Result<std::string>(*spec_.run.name)
                                            : make_dated_folder(storage, runtime_.clock().wall()));
  plan_.path = plan_.storage_path = fs::path(storage) / plan_.name;
  TRIREME_TRY(check_resume(control::is_run_folder(plan_.path)));
  TRIREME_TRY(storage::make_folder(plan_.path + "/logs"), "RunConfig.storage_path = '{}' cannot be written", storage);
  TRIREME_TRY(lock_folder());
  remove_half_written();
  return {};
}

base::Result<void> Run::plan_remote_folder(const std::string& storage) {
  // Object stores cannot create a folder exclusively: the id makes the name unique.
  plan_.name = spec_.run.name.value_or(
      fmt::format("trireme_run-{}-{}", base::timestamp_name(runtime_.clock().wall()), plan_.id.substr(0, 4)));
  plan_.storage_path = storage + "/" + plan_.name;
  if (!plan_.storage_uri.empty()) plan_.storage_uri = storage::child_of(plan_.storage_uri, plan_.name);
  TRIREME_ASSIGN(bool run_there, plan_.files->exists(plan_.storage_path + "/run.json"),
                 "RunConfig.storage_path = '{}' cannot be used", plan_.files->describe(storage));
  TRIREME_TRY(check_resume(run_there));
  plan_.path = mirror_folder(plan_.files->describe(storage), plan_.name);
  TRIREME_TRY(storage::make_folder(plan_.path + "/logs"));
  TRIREME_TRY(lock_folder());
  TRIREME_ASSIGN(lease_,
                 control::Lease::take(plan_.files, plan_.storage_path, plan_.id,
                                      [](const std::string& message) { base::log_warning("{}", message); }, {}));
  plan_.permit = [lease = lease_.get()] { return lease->confirm(); };  // the controller is destroyed first
  // An earlier start may have run on another machine: its history is in the storage.
  for (const char* name : {"/run.json", "/events.jsonl"}) {
    TRIREME_ASSIGN(bool there, plan_.files->exists(plan_.storage_path + name));
    if (!there) continue;
    TRIREME_ASSIGN(auto content, plan_.files->read(plan_.storage_path + name));
    std::error_code absent;
    const auto size = fs::file_size(plan_.path + name, absent);
    if (absent || size < content.size()) TRIREME_TRY(storage::write_file_atomically(plan_.path + name, content));
  }
  return {};
}

base::Result<void> Run::check_resume(bool there) const {
  const std::string where = plan_.files->describe(plan_.storage_path);
  if (spec_.run.resume == "never" && there) {
    return base::error(
        "RunConfig.resume = 'never': there is a run '{}' in {} already. Give this one another name, remove that "
        "folder, or leave resume out to continue it",
        plan_.name, where);
  }
  if (spec_.run.resume == "must" && !there) {
    return base::error(
        "RunConfig.resume = 'must': there is no run '{}' to continue in {}. Check name and storage_path, or leave "
        "resume out to begin one",
        plan_.name, where);
  }
  return {};
}

base::Result<void> Run::lock_folder() {
  const std::string path = plan_.path + "/.lock";
  // Only for this user: a process that may open the file may also lock it.
  lock_ = base::LockFile(base::Fd(::open(path.c_str(), O_RDWR | O_CREAT | O_NOFOLLOW | O_CLOEXEC, 0600)));
  if (!lock_.valid()) return base::system_error(fmt::format("the run folder cannot be written: {}", path), errno);
  // An earlier version made it readable by all. This fails if another user created it, which is fine.
  (void)::fchmod(lock_.get(), 0600);
  // The kernel releases the lock when this process ends, also when it is killed.
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (!lock_.lock(LOCK_EX | LOCK_NB)) {
    const std::string who = active_driver();
    if (who.empty() && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kLockPause);
      continue;
    }
    return base::error(
        "run '{}' is already running ({}folder {}); give this one another RunConfig.name, or `trireme stop {}` first",
        plan_.name, who, plan_.path, plan_.name);
  }
  return {};
}

std::string Run::active_driver() const {
  std::string who;
  for (const auto& entry : registry_.list_runs()) {
    if (entry.path != plan_.path || !control::is_active(entry)) continue;
    who = fmt::format("pid {}{}, ", entry.pid, control::is_elsewhere(entry) ? " on " + entry.host : "");
  }
  return who;
}

base::Result<void> Run::plan_resume() {
  TRIREME_ASSIGN(auto listing, checkpoint::list_committed(*plan_.files, plan_.storage_path),
                 "run '{}' cannot be continued", plan_.name);
  plan_.warnings = std::move(listing.damaged);
  resumed_ = control::is_run_folder(plan_.path);
  if (resumed_) {
    if (const auto record = control::read_run(plan_.path)) {
      plan_.reports = control::summary(*record, false, 0).reports;
      if (auto history = control::metrics_history(*record); !history.empty()) {
        plan_.last_metrics = std::move(history.back());
      }
    } else {
      plan_.warnings.push_back(fmt::format(
          "the history of the run cannot be read: {}; the count of reports starts at 0", record.error().message()));
    }
  }
  TRIREME_ASSIGN(plan_.first_attempt, next_attempt(plan_.path, plan_.files->local()));
  if (spec_.resume_from_checkpoint) {
    if (!spec_.resume_checkpoint_elsewhere && !fs::is_directory(*spec_.resume_from_checkpoint)) {
      return base::error("resume_from_checkpoint = '{}': there is no such folder", *spec_.resume_from_checkpoint);
    }
    plan_.checkpoint = spec_.resume_checkpoint_elsewhere ? *spec_.resume_from_checkpoint
                                                         : fs::absolute(*spec_.resume_from_checkpoint).native();
    plan_.checkpoint_in_storage = false;
    plan_.positions = positions_in(*plan_.checkpoint);
  }
  return pick_checkpoint(std::move(listing.committed));
}

// The newest intact one. A damaged checkpoint stays in its folder for inspection, until the run reaches that report
// again.
base::Result<void> Run::pick_checkpoint(std::vector<checkpoint::Committed> committed) {
  std::vector<std::string> damaged;
  while (!committed.empty()) {
    auto whole = checkpoint::verify(*plan_.files, committed.back(), spec_.run.checkpoint_config.verify_on_resume);
    if (whole) break;
    damaged.push_back(fmt::format("{} is damaged ({})", committed.back().name, whole.error().message()));
    committed.pop_back();
  }
  const std::string instead = committed.empty() ? "no other is left, so the run starts from the beginning"
                                                : "the run continues from " + committed.back().name;
  for (const auto& each : damaged) plan_.warnings.push_back(fmt::format("{}; {}", each, instead));
  for (const auto& each : committed) {
    const auto& manifest = each.manifest;
    plan_.kept.push_back(
        {manifest.index, each.name, manifest.metrics, manifest.status, manifest.validation, manifest.attempt});
  }
  if (committed.empty()) return {};
  plan_.checkpoint = committed.back().path;
  plan_.checkpoint_in_storage = true;
  plan_.first_report = committed.back().manifest.index + 1;
  plan_.positions = committed.back().manifest.positions;
  return {};
}

base::Result<void> Run::write_run_file() const {
  Dict run{{"format", 1},
           {"name", plan_.name},
           {"id", plan_.id},
           {"version", TRIREME_VERSION},
           {"trainer", plan_.trainer},
           {"created", runtime_.clock().wall()}};
  run["scaling_config"] = base::to_dict(spec_.scaling);
  run["run_config"] = base::to_dict(spec_.run);
  run["metadata"] = spec_.metadata;
  run["share_cuda_visible_devices"] = spec_.share_cuda_visible_devices;
  return storage::write_file_atomically(fmt::format("{}/{}", plan_.path, storage::kRunFile),
                                        base::to_pretty_json(run) + "\n");
}

// A driver or worker that is killed while it writes a file leaves it under its temporary name.
void Run::remove_half_written() const {
  const std::string prefix = fmt::format("{}tmp_", storage::kOwnPrefix);
  std::error_code ignored;  // a file that cannot be removed does no harm
  for (const auto& folder : {fs::path(plan_.path), fs::path(plan_.path) / storage::kDataFolder}) {
    for (const auto& entry : fs::directory_iterator(folder, ignored)) {
      if (entry.path().filename().native().starts_with(prefix)) fs::remove(entry.path(), ignored);
    }
  }
}

}  // namespace trireme::api
