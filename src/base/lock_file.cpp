#include "base/lock_file.h"

#include <pthread.h>
#include <sys/file.h>

#include <array>
#include <atomic>
#include <cerrno>
#include <utility>

namespace trireme::base {
namespace {

// Process-wide, as fork() is. Each entry is a descriptor plus one; 0: free. A process only has a few.
std::array<std::atomic<int>, 1024> descriptors;

// Runs in the child: only async-signal-safe calls are allowed.
void close_all() {
  for (auto& each : descriptors) {
    if (const int taken = each.exchange(0); taken > 0) ::close(taken - 1);
  }
}

// -1 if the table is full: a child then keeps the lock, as it would without this table.
int take_place(int descriptor) {
  [[maybe_unused]] static const int registered = ::pthread_atfork(nullptr, nullptr, close_all);
  for (std::size_t i = 0; i < descriptors.size(); ++i) {
    int free = 0;
    if (descriptors[i].compare_exchange_strong(free, descriptor + 1)) return static_cast<int>(i);
  }
  return -1;
}

}  // namespace

LockFile::LockFile(Fd file) : file_(std::move(file)), owner_(::getpid()) {
  if (file_.valid()) place_ = take_place(file_.get());
}

LockFile::LockFile(LockFile&& other) noexcept
    : file_(std::move(other.file_)), owner_(other.owner_), place_(std::exchange(other.place_, -1)) {}

LockFile& LockFile::operator=(LockFile&& other) noexcept {
  if (this != &other) {
    reset();
    file_ = std::move(other.file_);
    owner_ = other.owner_;
    place_ = std::exchange(other.place_, -1);
  }
  return *this;
}

bool LockFile::valid() const { return file_.valid() && owner_ == ::getpid(); }

bool LockFile::lock(int how) const {
  while (::flock(file_.get(), how) != 0) {
    if (errno != EINTR) return false;
  }
  return true;
}

void LockFile::reset() {
  if (!file_.valid()) return;
  if (owner_ != ::getpid()) {
    // Closed when the child started. The number may belong to another file by now.
    if (place_ >= 0) (void)file_.release();
    file_.reset();
    return;
  }
  // Closing is not enough if a child still shares the open file.
  ::flock(file_.get(), LOCK_UN);
  if (place_ >= 0) descriptors[static_cast<std::size_t>(place_)] = 0;
  place_ = -1;
  file_.reset();
}

}  // namespace trireme::base
