#include "control/event_log.h"

#include <fcntl.h>
#include <unistd.h>

#include "base/json.h"

namespace trireme::control {

base::Result<EventLog> EventLog::open(const std::string& path) {
  base::Fd file(::open(path.c_str(), O_RDWR | O_CREAT | O_APPEND | O_CLOEXEC, 0644));
  if (!file.valid()) return base::system_error(fmt::format("could not open {}", path), errno);
  // A crash may have left an incomplete line: it must not swallow the first line of this run.
  char last = '\n';
  off_t size = ::lseek(file.get(), 0, SEEK_END);
  if (size > 0 && ::pread(file.get(), &last, 1, size - 1) != 1) {
    return base::system_error(fmt::format("could not read {}", path), errno);
  }
  EventLog log(std::move(file), path);
  if (last != '\n') log.buffer_ = "\n";
  return log;
}

void EventLog::append(const Dict& event) {
  base::append_json(buffer_, event);
  buffer_ += '\n';
}

base::Result<void> EventLog::flush() {
  std::size_t written = 0;
  while (written < buffer_.size()) {
    ssize_t count = ::write(file_.get(), buffer_.data() + written, buffer_.size() - written);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0) {
      int failure = errno;
      buffer_.erase(0, written);
      return base::system_error(fmt::format("could not write {}", path_), failure);
    }
    written += static_cast<std::size_t>(count);
  }
  buffer_.clear();
  return {};
}

base::Result<void> EventLog::sync() {
  TRIREME_TRY(flush());
  if (::fdatasync(file_.get()) != 0) return base::system_error(fmt::format("could not sync {}", path_), errno);
  return {};
}

base::Result<base::Fd> EventLog::duplicate() const {
  base::Fd copy(::fcntl(file_.get(), F_DUPFD_CLOEXEC, 0));
  if (!copy.valid()) return base::system_error(fmt::format("could not open {} again", path_), errno);
  return copy;
}

}  // namespace trireme::control
