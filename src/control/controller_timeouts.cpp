// Evidence for the cause of a collective operation that times out: the stacks of all ranks from before, the watchdog's
// last words, and NCCL's flight recorder.

#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>

#include "base/log.h"
#include "control/controller.h"
#include "control/failure_policy.h"
#include "storage/local_files.h"
#include "storage/run_names.h"

namespace trireme::control {
namespace {

namespace fs = std::filesystem;

// Behind the watchdog's text are the native stacks of two exceptions.
constexpr std::streamoff kWatchdogTail = 64 * 1024;

std::string end_of(const std::string& path) {
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  if (!file) return "";
  const auto size = std::clamp<std::streamoff>(file.tellg(), 0, kWatchdogTail);
  file.seekg(-size, std::ios::end);
  std::string text(static_cast<std::size_t>(size), '\0');
  file.read(text.data(), size);  // unlike std::istreambuf_iterator, it does not throw if the disk fails
  text.resize(static_cast<std::size_t>(file.gcount()));
  return text;
}

}  // namespace

void Controller::take(wire::Channel&, wire::CollectiveTimeout& message) {
  const bool first = collective_timeout_s_ <= 0;
  collective_timeout_s_ = first ? message.seconds : std::min(collective_timeout_s_, message.seconds);
}

// A collective may time out soon if no rank has reported for half of that time. After the timeout it is too late: the
// watchdogs of healthy ranks end their processes. Looking again every quarter finds the ranks in their places even if
// the wait began long after the last report.
void Controller::look_for_timeout(base::MonotonicTime now) {
  if (collective_timeout_s_ <= 0 || state_.phase != Phase::kRunning || stack_round_) return;
  if (peers_.empty() || entered_ != static_cast<int>(peers_.size())) return;
  auto silent_for = [&](base::MonotonicTime since, double part) {
    return base::Seconds(now - since).count() >= part * collective_timeout_s_;
  };
  for (const auto& peer : peers_) {
    if (!silent_for(peer.reported, 0.5)) return;
  }
  if (timeout_looked_ && !silent_for(*timeout_looked_, 0.25)) return;
  timeout_looked_ = now;
  collect_stacks("a collective may time out", [this](const HangReport& report, const std::string& path) {
    if (!timeout_stacks_.empty()) {
      std::error_code ignored;  // an old file that stays harms nobody
      fs::remove(timeout_stacks_, ignored);
    }
    timeout_stacks_ = path;
    handle(StacksTaken{{report.where, report.summary, path}});
  });
}

std::string Controller::watchdog_of(int rank, const engine::ExitStatus& status, const std::string& log) const {
  if (status.kind != engine::ExitStatus::Kind::kSignal || status.value != SIGABRT) return "";
  std::string text = watchdog_line(end_of(log));
  if (text.empty()) return "";
  const std::string record = fmt::format("{}/{}{}", plan_.path, storage::kFlightRecord, rank);
  std::error_code ignored;
  if (fs::exists(record, ignored)) text += fmt::format("; flight recorder: {}", record);
  return text;
}

// torch writes to the same names in every attempt.
void Controller::set_aside_flight_records() const {
  const fs::path prefix = fmt::format("{}/{}", plan_.path, storage::kFlightRecord);
  std::error_code ended;
  for (fs::directory_iterator it(prefix.parent_path(), ended), end; !ended && it != end; it.increment(ended)) {
    const std::string name = it->path().filename();
    if (!name.starts_with(prefix.filename().native())) continue;
    const fs::path aside = prefix.parent_path() / fmt::format("attempt_{}-{}", state_.attempt - 1, name);
    std::error_code failed;
    fs::rename(it->path(), aside, failed);
    if (failed)
      base::log_warning("could not rename {} to {}: {}", it->path().native(), aside.native(), failed.message());
  }
}

}  // namespace trireme::control
