#include "agent/log_forwarder.h"

#include <fcntl.h>
#include <sys/file.h>
#include <unistd.h>

#include <cerrno>
#include <cstdlib>

#include "base/fd.h"

namespace trireme::agent {
namespace {

namespace fs = std::filesystem;

constexpr const char* kPrefix = "trireme-agent-";
constexpr const char* kLock = "lock";

fs::path scratch_parent() {
  const char* asked = std::getenv("TMPDIR");
  return asked && *asked ? asked : "/tmp";
}

base::LockFile locked(const fs::path& folder) {
  base::LockFile lock(base::Fd(::open((folder / kLock).c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600)));
  if (lock.valid() && lock.lock(LOCK_EX | LOCK_NB)) return lock;
  return {};
}

// The lock goes last: if this process is killed in between, another agent continues.
void remove_scratch(const fs::path& folder) {
  std::error_code ignored;  // another agent removes the rest later
  for (const auto& entry : fs::directory_iterator(folder, ignored)) {
    if (entry.path().filename() != kLock) fs::remove_all(entry.path(), ignored);
  }
  fs::remove_all(folder, ignored);
}

// An agent that was killed could not remove its folder.
void remove_abandoned(const fs::path& parent) {
  std::error_code ignored;  // a folder that cannot be removed belongs to another user, or does no harm
  for (const auto& entry : fs::directory_iterator(parent, ignored)) {
    if (!entry.path().filename().native().starts_with(kPrefix) || !fs::exists(entry.path() / kLock, ignored)) continue;
    if (locked(entry.path()).valid()) remove_scratch(entry.path());
  }
}

}  // namespace

base::Result<LogForwarder> LogForwarder::create(Send send) {
  const fs::path parent = scratch_parent();
  remove_abandoned(parent);
  std::string name = (parent / (std::string(kPrefix) + "XXXXXX")).native();
  if (!::mkdtemp(name.data()))
    return base::system_error(fmt::format("could not create a folder in {}", parent.native()), errno);
  auto lock = locked(name);
  if (!lock.valid()) return base::system_error(fmt::format("could not lock {}", name), errno);
  return LogForwarder(name, std::move(lock), std::move(send));
}

LogForwarder::LogForwarder(fs::path root, base::LockFile lock, Send send)
    : root_(std::move(root)), lock_(std::move(lock)), send_(std::move(send)) {}

LogForwarder::~LogForwarder() {
  if (lock_.valid()) remove_scratch(root_);
}

base::Result<std::string> LogForwarder::add(const std::string& path) {
  const std::string here = root_.native() + path;
  std::error_code failure;
  fs::create_directories(fs::path(here).parent_path(), failure);
  if (failure) return base::system_error(fmt::format("could not create the folder of {}", here), failure.value());
  folders_.insert(fs::path(path).parent_path().parent_path());
  return here;
}

bool LogForwarder::forward(std::size_t limit) {
  bool more = false;
  std::error_code ignored;  // a folder may not exist yet
  for (const auto& folder : folders_) {
    for (const auto& attempt : fs::directory_iterator(root_.native() + folder, ignored)) {
      for (const auto& log : fs::directory_iterator(attempt.path(), ignored)) {
        more |= forward(log.path().native().substr(root_.native().size()), limit);
      }
    }
  }
  return more;
}

void LogForwarder::forward_all() {
  constexpr std::size_t kBlock = std::size_t{1} << 20;
  while (forward(kBlock)) continue;
}

bool LogForwarder::forward(const std::string& path, std::size_t limit) {
  const base::Fd file(::open((root_.native() + path).c_str(), O_RDONLY | O_CLOEXEC));
  if (!file.valid()) return false;
  auto& sent = sent_[path];
  std::string data(limit, '\0');
  const ssize_t count = ::pread(file.get(), data.data(), data.size(), static_cast<off_t>(sent));
  if (count <= 0) return false;
  data.resize(static_cast<std::size_t>(count));
  sent += data.size();
  const bool more = data.size() == limit;
  send_(path, std::move(data));
  return more;
}

}  // namespace trireme::agent
