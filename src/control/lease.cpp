#include "control/lease.h"

#include <unistd.h>

#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "control/event_fields.h"
#include "control/run_registry.h"

namespace trireme::control {
namespace {

constexpr const char* kName = "/.trireme_lease.json";

base::Result<Dict> read_lease(storage::Files& files, const std::string& path) {
  TRIREME_ASSIGN(bool there, files.exists(path));
  if (!there) return Dict();
  TRIREME_ASSIGN(auto text, files.read(path));
  auto lease = base::parse_json_dict(text);
  return lease ? *std::move(lease) : Dict();  // half a lease is nobody's
}

// On this machine the process table knows; elsewhere only time can tell.
bool holder_is_gone(const Dict& lease) {
  if (lease.empty()) return true;
  if (text_of(lease, "host") != base::host_name()) return false;
  return process_start(int_of(lease, "pid")).value_or(0) != int_of(lease, "pid_start");
}

}  // namespace

base::Result<std::unique_ptr<Lease>> Lease::take(std::shared_ptr<storage::Files> files, const std::string& run_path,
                                                 const std::string& id, const Warn& say, Timing timing) {
  const std::string path = run_path + kName;
  TRIREME_ASSIGN(auto held, read_lease(*files, path));
  if (!holder_is_gone(held)) {
    say(fmt::format("{} was last opened by pid {} on {}; looking for {:.0f} s whether that driver still lives",
                    files->describe(run_path), int_of(held, "pid"), text_of(held, "host"), timing.patience.count()));
    std::this_thread::sleep_for(timing.patience);
    TRIREME_ASSIGN(auto later, read_lease(*files, path));
    if (!later.empty() && later != held) {
      return base::error("run {} is already running (pid {} on {}); give this one another RunConfig.name, or stop that",
                         files->describe(run_path), int_of(later, "pid"), text_of(later, "host"));
    }
  }
  std::unique_ptr<Lease> lease(new Lease(files, path, id, timing));
  TRIREME_TRY(lease->write(), "RunConfig.storage_path: {} cannot be written", files->describe(run_path));
  // Of two who came at the same moment the later writer has it.
  std::this_thread::sleep_for(timing.period / 20);
  TRIREME_ASSIGN(auto now, read_lease(*files, path));
  if (text_of(now, "id") != id) {
    return base::error("run {} was opened by another driver at the same moment (pid {} on {})",
                       files->describe(run_path), int_of(now, "pid"), text_of(now, "host"));
  }
  lease->thread_ = std::jthread([lease = lease.get()] { lease->renew(); });
  return lease;
}

Lease::Lease(std::shared_ptr<storage::Files> files, std::string path, std::string id, Timing timing)
    : files_(std::move(files)), path_(std::move(path)), id_(std::move(id)), timing_(timing) {}

Lease::~Lease() {
  if (!thread_.joinable()) return;  // never had it
  {
    std::lock_guard lock(mutex_);
    ending_ = true;
    changed_.notify_all();
  }
  thread_.join();
  if (lost_) return;
  if (auto removed = files_->remove_file(path_); !removed) base::log_warning("{}", removed.error().message());
}

base::Result<void> Lease::write() {
  const int pid = ::getpid();
  Dict lease{{"id", id_}, {"host", base::host_name()}, {"pid", pid}};
  lease["pid_start"] = process_start(pid).value_or(0);
  lease["beat"] = ++beat_;
  return files_->write_atomically(path_, base::to_json(lease));
}

void Lease::on_lost(std::function<void(std::string why)> lost) {
  std::lock_guard lock(mutex_);
  on_lost_ = std::move(lost);
}

void Lease::renew() {
  std::unique_lock lock(mutex_);
  while (!changed_.wait_for(lock, timing_.period, [&] { return ending_; })) {
    lock.unlock();
    auto held = read_lease(*files_, path_);
    const bool taken = held && !held->empty() && text_of(*held, "id") != id_;
    // A store that is away for a while is not lost: the next beat tries again.
    auto written = taken || !held ? base::Result<void>() : write();
    if (!written) base::log_warning("{}", written.error().message());
    lock.lock();
    if (!taken) continue;
    lost_ = true;
    if (on_lost_) {
      on_lost_(fmt::format("another driver has taken the run over (pid {} on {})", int_of(*held, "pid"),
                           text_of(*held, "host")));
    }
    return;
  }
}

}  // namespace trireme::control
