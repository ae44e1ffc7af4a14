#pragma once

#include <string>

#include "base/fd.h"
#include "base/result.h"
#include "trireme/value.h"

namespace trireme::control {

// The append-only truth of a run: one JSON object a line (docs/event_log.md). Lines are gathered and written in one
// call; an event that must outlive a crash is flushed before anything follows from it.
class EventLog {
 public:
  static base::Result<EventLog> open(const std::string& path);

  void append(const Dict& event);
  // To the file (a reader sees it).
  base::Result<void> flush();
  // To the disk.
  base::Result<void> sync();
  // The same file for another thread to sync.
  base::Result<base::Fd> duplicate() const;

 private:
  EventLog(base::Fd file, std::string path) : file_(std::move(file)), path_(std::move(path)) {}

  base::Fd file_;
  std::string path_;
  std::string buffer_;
};

}  // namespace trireme::control
