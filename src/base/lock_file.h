#pragma once

#include "base/fd.h"

namespace trireme::base {

// An open file that is there to be locked (flock). The kernel gives the lock back when its process ends, however that
// ends; a child that the process forks meanwhile has no part in it: it would keep the lock for as long as it lives.
class LockFile {
 public:
  LockFile() = default;
  explicit LockFile(Fd file);
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;
  // Unlocks.
  ~LockFile() { reset(); }

  // Not in a forked copy of it.
  bool valid() const;
  int get() const { return file_.get(); }
  // `how` as flock(2) has it. False: see errno.
  bool lock(int how) const;
  void reset();

 private:
  Fd file_;
  int owner_ = 0;   // the process
  int place_ = -1;  // among those that a child closes
};

}  // namespace trireme::base
