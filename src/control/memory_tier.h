#pragma once

#include <cstdint>
#include <map>
#include <string>

#include "base/fd.h"
#include "trireme/value.h"

namespace trireme::control {

// The newest checkpoint in the machine's memory. A worker has the image of its files in memory without a name (memfd);
// this opens the same memory through /proc while the worker lives and keeps it when the worker is gone. It ends with
// the driver, however that ends: nothing can be left behind.
class MemoryTier {
 public:
  // What a worker of this machine has of report `index`: path in the checkpoint -> its descriptor. What cannot be
  // opened is passed over: the storage has it too.
  void hold(std::int64_t index, int pid, const Dict& descriptors);
  // The checkpoint of report `index` is committed: older ones are forgotten.
  void committed(std::int64_t index);
  // Of an attempt that is over: whatever was not committed.
  void forget_uncommitted();

  // Path in the checkpoint -> path to open, for the checkpoint of report `index`: what is held of it.
  Dict files(std::int64_t index) const;

 private:
  std::map<std::int64_t, std::map<std::string, base::Fd>> held_;
  std::int64_t committed_ = -1;
};

}  // namespace trireme::control
