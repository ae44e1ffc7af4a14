#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"
#include "trireme/value.h"

namespace trireme::control {

// The newest checkpoint in the machine's memory. A worker keeps the image of its files in anonymous memory (memfd);
// this class opens the same memory through /proc while the worker is alive and keeps it after the worker has exited.
// The kernel frees it when the driver ends, so nothing is left behind.
class MemoryTier {
 public:
  // The files of report `index` that a worker on this machine holds: path in the checkpoint -> its descriptor. Files
  // that cannot be opened are skipped: the storage has them too.
  void hold(std::int64_t index, int pid, const Dict& descriptors);
  // The checkpoint of report `index` is committed: older ones are dropped.
  void committed(std::int64_t index);
  // Drops uncommitted checkpoints of an attempt that is over.
  void forget_uncommitted();

  // Path in the checkpoint -> path to open, for the held files of report `index`.
  Dict files(std::int64_t index) const;

 private:
  std::map<std::int64_t, std::map<std::string, base::Fd>> held_;
  std::int64_t committed_ = -1;
};

}  // namespace trireme::control
