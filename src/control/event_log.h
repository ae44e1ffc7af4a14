#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "trireme/value.h"

namespace trireme::control {

// The append-only record of a run: one JSON object per line (docs/event_log.md). Lines are buffered and written
// together; an event that must survive a crash is flushed before any action that follows from it.
class EventLog {
 public:
  static base::Result<EventLog> open(const std::string& path);

  void append(const Dict& event);
  // Writes to the file, where readers see it.
  base::Result<void> flush();
  // Syncs to the disk.
  base::Result<void> sync();
  // A descriptor of the same file, for another thread to sync.
  base::Result<base::Fd> duplicate() const;

 private:
  EventLog(base::Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  base::Fd file_;
  std::string path_;
  std::string buffer_;
};

}  // namespace trireme::control
