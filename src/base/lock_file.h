#pragma once

#include "base/fd.h"

namespace trireme::base {

// An open file used as a lock (flock). The kernel releases the lock when the process ends, for any reason. Children
// forked while it is held close it; otherwise they would hold the lock for their lifetime.
class LockFile {
 public:
  LockFile() = default;
  explicit LockFile(Fd file);
  LockFile(LockFile&& other) noexcept;
  LockFile& operator=(LockFile&& other) noexcept;
  // Unlocks.
  ~LockFile() { reset(); }

  // False in a forked copy.
  bool valid() const;
  int get() const { return file_.get(); }
  // `how` is the operation of flock(2). False: see errno.
  bool lock(int how) const;
  void reset();

 private:
  Fd file_;
  int owner_ = 0;   // the pid of the owner
  int place_ = -1;  // index in the table of descriptors that a child closes
};

}  // namespace trireme::base
