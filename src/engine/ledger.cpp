#include "engine/ledger.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <chrono>
#include <fstream>
#include <sstream>
#include <thread>

#include "base/json.h"
#include "base/log.h"

namespace trireme::engine {
namespace {

namespace fs = std::filesystem;
using base::Result;

// A decision takes well under a millisecond. A lock that is held this long belongs to a hung process.
constexpr std::chrono::seconds kLockPatience{5};

bool try_lock(const base::LockFile& file) { return file.lock(LOCK_EX | LOCK_NB); }

base::LockFile open_lock(const fs::path& path, int flags) {
  return base::LockFile(base::Fd(::open(path.c_str(), flags | O_CLOEXEC, 0600)));
}

std::optional<Holding> read_holding(const fs::path& path) {
  std::ifstream file(path);
  std::ostringstream text;
  text << file.rdbuf();
  const auto dict = base::parse_json_dict(text.str());
  if (!dict) return {};
  auto holding = base::from_dict<Holding>(*dict, "the reservation");
  if (!holding) return {};
  return std::move(holding).value();
}

base::Error not_writable(const fs::path& folder, std::string reason) {
  return base::Error(std::move(reason))
      .wrap(fmt::format(
          "could not write reservations of declared capacity to {} (set TRIREME_STATE_DIR to a writable folder)",
          folder.string()));
}

}  // namespace

Reservation::Reservation(base::LockFile locked, fs::path path) : locked_(std::move(locked)), path_(std::move(path)) {}

Reservation& Reservation::operator=(Reservation&& other) noexcept {
  if (this != &other) {
    give_back();
    locked_ = std::move(other.locked_);
    path_ = std::move(other.path_);
  }
  return *this;
}

void Reservation::give_back() {
  // A forked copy of the driver must not release the driver's reservations.
  if (!locked_.valid()) return;
  ::unlink(path_.c_str());
  locked_.reset();
}

Result<void> Ledger::make_folder() const {
  std::error_code failure;
  fs::create_directories(folder_, failure);
  if (failure) return not_writable(folder_, failure.message());
  return {};
}

Result<base::LockFile> Ledger::lock() const {
  const fs::path path = folder_ / "lock";
  base::LockFile file = open_lock(path, O_RDWR | O_CREAT);
  if (!file.valid()) return not_writable(folder_, base::system_error("open lock", errno).message());
  const auto deadline = std::chrono::steady_clock::now() + kLockPatience;
  while (!try_lock(file)) {
    if (errno != EWOULDBLOCK) {
      return not_writable(folder_, base::system_error("flock", errno).message());
    }
    if (std::chrono::steady_clock::now() > deadline) {
      return base::error("another process has locked {} for {} s; `fuser {}` shows which one", path.string(),
                         kLockPatience.count(), path.string());
    }
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  return file;
}

std::vector<Holding> Ledger::read_all(const std::set<fs::path>& except) const {
  std::vector<Holding> holdings;
  std::error_code failure;
  for (fs::directory_iterator entry(folder_, failure), end; !failure && entry != end; entry.increment(failure)) {
    const fs::path path = entry->path();
    if (path.extension() != ".json" || except.contains(path)) continue;
    const base::LockFile file = open_lock(path, O_RDONLY);
    if (!file.valid()) continue;
    if (try_lock(file)) {
      // The lock is free: the driver has exited.
      ::unlink(path.c_str());
    } else if (auto holding = read_holding(path)) {
      holdings.push_back(*std::move(holding));
    } else {
      base::log_warning("{} is not a reservation that this version can read: it is ignored", path.string());
    }
  }
  return holdings;
}

Result<Reservation> Ledger::write(const Holding& holding) const {
  fs::path path;
  base::LockFile file;
  for (int number = 0; !file.valid(); ++number) {
    path = folder_ / fmt::format("{}-{}.json", holding.pid, number);
    file = open_lock(path, O_RDWR | O_CREAT | O_EXCL);
    if (!file.valid() && errno != EEXIST) {
      return not_writable(folder_, base::system_error("open " + path.filename().string(), errno).message());
    }
  }
  const std::string text = base::to_json(base::to_dict(holding)) + "\n";
  if (!try_lock(file) || ::write(file.get(), text.data(), text.size()) != static_cast<ssize_t>(text.size())) {
    const int reason = errno;
    ::unlink(path.c_str());
    return not_writable(folder_, base::system_error("write " + path.filename().string(), reason).message());
  }
  return Reservation(std::move(file), std::move(path));
}

Result<std::optional<Reservation>> Ledger::reserve(const Decide& decide) const {
  TRIREME_TRY(make_folder());
  TRIREME_ASSIGN(const base::LockFile locked, lock());
  const auto holding = decide(read_all());
  if (!holding) return std::optional<Reservation>();
  TRIREME_ASSIGN(auto reservation, write(*holding));
  return std::optional<Reservation>(std::move(reservation));
}

Result<void> Ledger::revise(const std::vector<std::optional<Reservation>*>& own, const Revise& decide) const {
  TRIREME_TRY(make_folder());
  TRIREME_ASSIGN(const base::LockFile locked, lock());
  std::set<fs::path> paths;
  for (const auto* reservation : own) {
    if (*reservation) paths.insert((*reservation)->path());
  }
  TRIREME_ASSIGN(const auto wanted, decide(read_all(paths)));
  TRIREME_CHECK(wanted.size() == own.size(), "{} reservations for {} gangs", wanted.size(), own.size());
  // Write all new files before removing the first old one: if one fails, nothing changes.
  std::vector<std::optional<Reservation>> fresh(own.size());
  for (std::size_t i = 0; i < own.size(); ++i) {
    if (wanted[i].resources.empty()) continue;
    TRIREME_ASSIGN(fresh[i], write(wanted[i]));
  }
  for (std::size_t i = 0; i < own.size(); ++i) *own[i] = std::move(fresh[i]);
  return {};
}

Result<std::vector<Holding>> Ledger::holdings() const {
  std::error_code failure;
  if (!fs::exists(folder_, failure)) return std::vector<Holding>();
  TRIREME_ASSIGN(const base::LockFile locked, lock());
  return read_all();
}

}  // namespace trireme::engine
