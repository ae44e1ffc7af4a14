#include "control/lease.h"

#include <unistd.h>

#include <algorithm>
#include <utility>

#include "base/dict_fields.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "control/run_registry.h"
#include "storage/retry.h"

namespace trireme::control {
namespace {

constexpr const char* kName = "/.trireme_lease.json";

struct LeaseFile {
  bool there = false;
  std::string text;  // raw text: an incomplete lease also changes while its writer is alive
  Dict fields;       // empty if the text cannot be parsed
};

base::Result<LeaseFile> read_lease(storage::Files& files, const std::string& path) {
  LeaseFile file;
  TRIREME_ASSIGN(file.there, files.exists(path));
  if (!file.there) return file;
  TRIREME_ASSIGN(file.text, files.read(path));
  if (auto fields = base::parse_json_dict(file.text)) file.fields = *std::move(fields);
  return file;
}

std::string holder(const LeaseFile& file) {
  if (file.fields.empty()) return "an unknown driver";
  return fmt::format("pid {} on {}", base::int_of(file.fields, "pid"), base::text_of(file.fields, "host"));
}

// If the holder's pid is in the same pid table as this process, the table shows whether it is alive; otherwise only
// waiting does. An unreadable lease may be in the middle of a write.
bool holder_is_gone(const LeaseFile& file) {
  if (!file.there) return true;
  const std::string table = base::text_of(file.fields, "process_table");
  if (table.empty() || table != base::process_table()) return false;
  return process_start(base::int_of(file.fields, "pid")).value_or(0) != base::int_of(file.fields, "pid_start");
}

std::string taken_by(const LeaseFile& file) {
  return fmt::format("another driver has taken over the run ({})", holder(file));
}

}  // namespace

base::Result<std::unique_ptr<Lease>> Lease::take(std::shared_ptr<storage::Files> files, const std::string& run_path,
                                                 const std::string& id, const Warn& say, Timing timing) {
  const std::string path = run_path + kName;
  TRIREME_ASSIGN(const auto held, read_lease(*files, path));
  if (!holder_is_gone(held)) {
    say(fmt::format("{} was last opened by {}; waiting {:.0f} s to see whether that driver is still alive",
                    files->describe(run_path), holder(held), timing.patience.count()));
    for (auto left = timing.patience; left.count() > 0; left -= timing.period) {
      std::this_thread::sleep_for(std::min(left, timing.period));
      TRIREME_ASSIGN(const auto later, read_lease(*files, path));
      if (!later.there || later.text == held.text) continue;
      return base::error("run {} is already running ({}); set another RunConfig.name, or stop the other run",
                         files->describe(run_path), holder(later));
    }
  }
  std::unique_ptr<Lease> lease(new Lease(files, path, id, timing));
  TRIREME_ASSIGN(lease->renewed_, lease->write(*files), "RunConfig.storage_path: {} cannot be written",
                 files->describe(run_path));
  // If two drivers start at the same moment, the later writer wins.
  std::this_thread::sleep_for(timing.period / 20);
  TRIREME_ASSIGN(const auto now, read_lease(*files, path));
  if (base::text_of(now.fields, "id") != id) {
    return base::error("run {} was opened by another driver at the same moment ({})", files->describe(run_path),
                       holder(now));
  }
  lease->thread_ = std::jthread([lease = lease.get()] { lease->renew(); });
  return lease;
}

Lease::Lease(std::shared_ptr<storage::Files> files, std::string path, std::string id, Timing timing)
    : files_(files->with_policy([](storage::RetryPolicy& policy) { policy.tries = 1; })),
      patient_files_(std::move(files)),
      path_(std::move(path)),
      id_(std::move(id)),
      timing_(timing) {}

Lease::~Lease() {
  if (!thread_.joinable()) return;  // never acquired
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
  if (!lost_.empty()) return;
  // No beat follows that could make up for a failed call, so it is retried.
  auto held = read_lease(*patient_files_, path_);
  auto removed = held ? base::Result<void>() : base::Result<void>(held.error());
  if (held && base::text_of(held->fields, "id") == id_) removed = patient_files_->remove_file(path_);
  if (!removed) base::log_warning("{}", removed.error().message());
}

base::Result<base::Seconds> Lease::write(storage::Files& files) {
  const int pid = ::getpid();
  Dict lease{{"id", id_}, {"host", base::host_name()}, {"pid", pid}};
  lease["process_table"] = base::process_table();
  lease["pid_start"] = process_start(pid).value_or(0);
  lease["beat"] = ++beat_;
  const auto began = timing_.now();
  TRIREME_TRY(files.write_atomically(path_, base::to_json(lease)));
  return began;
}

void Lease::on_lost(std::function<void(std::string why)> lost) {
  std::lock_guard lock(mutex_);
  on_lost_ = std::move(lost);
  if (!lost_.empty() && on_lost_) std::exchange(on_lost_, nullptr)(lost_);
}

base::Result<void> Lease::confirm() {
  std::unique_lock lock(mutex_);
  if (!sure()) {
    hurry_ = true;
    changed_.notify_all();
    changed_.wait_for(lock, 2 * timing_.patience, [&] { return sure() || ending_ || !lost_.empty(); });
  }
  if (!lost_.empty()) return base::error("{}", lost_);
  if (sure()) return {};
  return base::error("could not renew the run's lease for {:.0f} s: another driver may have taken over the run",
                     (timing_.now() - renewed_).count());
}

base::Result<std::optional<std::string>> Lease::beat() {
  bool doubtful = false;
  {
    std::lock_guard lock(mutex_);
    doubtful = !sure();
  }
  TRIREME_ASSIGN(const auto held, read_lease(*files_, path_));
  const bool ours = base::text_of(held.fields, "id") == id_;
  if (!held.fields.empty() && !ours) return std::optional(taken_by(held));
  // No driver takes a lease that is being renewed. After a long silence it may have been taken and released.
  if (!held.there && doubtful) {
    return std::optional<std::string>(
        "its lease was removed: another driver may have taken over the run in the meantime");
  }
  TRIREME_ASSIGN(const auto began, write(*files_));
  if (doubtful) {
    // A challenger may have decided before this beat: the later writer wins.
    std::this_thread::sleep_for(timing_.period / 20);
    TRIREME_ASSIGN(const auto again, read_lease(*files_, path_));
    if (base::text_of(again.fields, "id") != id_) return std::optional(taken_by(again));
  }
  std::lock_guard lock(mutex_);
  renewed_ = began;
  return std::optional<std::string>();
}

void Lease::renew() {
  std::unique_lock lock(mutex_);
  auto pause = timing_.period;
  bool failing = false;  // and the warning was logged
  while (true) {
    changed_.wait_for(lock, pause, [&] { return ending_ || hurry_; });
    if (ending_) return;
    hurry_ = false;
    lock.unlock();
    auto taken = beat();
    // The storage may be unavailable for a while: the next beat retries soon.
    if (!std::exchange(failing, !taken) && !taken) {
      base::log_warning("could not renew the run's lease: {}", taken.error().message());
    }
    lock.lock();
    pause = taken ? timing_.period : timing_.period / 4;
    if (taken && *taken) lost_ = **taken;
    changed_.notify_all();
    if (lost_.empty()) continue;
    if (on_lost_) std::exchange(on_lost_, nullptr)(lost_);
    return;
  }
}

}  // namespace trireme::control
