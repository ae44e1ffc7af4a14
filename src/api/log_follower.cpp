#include "api/log_follower.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <utility>

namespace trireme::api {
namespace {

// The maximum size of a log tail; earlier lines are omitted even if requested.
constexpr std::uint64_t kMaxTail = 1024 * 1024;

std::uint64_t size_of(int fd) {
  struct stat status {};
  return ::fstat(fd, &status) == 0 ? static_cast<std::uint64_t>(status.st_size) : 0;
}

// Reads less than `size` only at the end of the file.
std::size_t read_at(int fd, std::uint64_t offset, char* into, std::size_t size) {
  std::size_t done = 0;
  while (done < size) {
    ssize_t count = ::pread(fd, into + done, size - done, static_cast<off_t>(offset + done));
    if (count < 0 && errno == EINTR) continue;
    if (count <= 0) break;
    done += static_cast<std::size_t>(count);
  }
  return done;
}

base::Fd open_log(const std::string& path) { return base::Fd(::open(path.c_str(), O_RDONLY | O_CLOEXEC)); }

// The offset of the last `count` lines; the last one may lack its newline.
std::uint64_t start_of_last(int fd, std::size_t count) {
  std::uint64_t size = size_of(fd);
  std::uint64_t begin = size;  // of the part searched so far
  std::size_t newlines = 0;
  std::string block;
  while (begin > 0 && size - begin < kMaxTail) {
    block.resize(std::min<std::uint64_t>(begin, 16 * 1024));
    begin -= block.size();
    block.resize(read_at(fd, begin, block.data(), block.size()));
    for (std::size_t i = block.size(); i-- > 0;) {
      if (block[i] != '\n' || begin + i + 1 == size) continue;
      if (++newlines == count) return begin + i + 1;
    }
  }
  return count == 0 ? size : begin;
}

void move_lines(int rank, std::vector<std::string>& lines, std::vector<LogLine>& out) {
  for (auto& line : lines) out.push_back({rank, std::move(line)});
  lines.clear();
}

}  // namespace

void LogFollower::follow(int rank, std::string path, std::optional<std::size_t> last) {
  auto& files = files_[rank];
  if (!files.empty() && files.back().path == path) return;
  base::Fd fd = open_log(path);
  std::uint64_t offset = last && fd.valid() ? start_of_last(fd.get(), *last) : 0;
  files.push_back({.path = std::move(path), .fd = std::move(fd), .offset = offset, .splitter = {}});
}

std::vector<LogLine> LogFollower::poll(base::MonotonicTime now) {
  std::vector<LogLine> out;
  std::vector<std::string> lines;
  for (auto& [rank, files] : files_) {
    // The process of an earlier attempt exits before the next one starts, so its log is complete.
    while (files.size() > 1) {
      drain(files.front(), lines);
      files.pop_front();
    }
    read_some(files.front(), lines);
    show_progress(files.front(), now, lines);
    move_lines(rank, lines, out);
  }
  return out;
}

std::vector<LogLine> LogFollower::finish() {
  std::vector<LogLine> out;
  std::vector<std::string> lines;
  for (auto& [rank, files] : files_) {
    for (auto& file : files) drain(file, lines);
    move_lines(rank, lines, out);
  }
  files_.clear();
  return out;
}

std::size_t LogFollower::read_some(File& file, std::vector<std::string>& lines) {
  if (!file.fd.valid()) file.fd = open_log(file.path);
  if (!file.fd.valid()) return 0;
  buffer_.resize(kReadSize);
  std::size_t count = read_at(file.fd.get(), file.offset, buffer_.data(), buffer_.size());
  file.offset += count;
  // The file was truncated: read from its start again.
  if (count == 0 && size_of(file.fd.get()) < file.offset) file.offset = 0;
  file.splitter.feed(std::string_view(buffer_).substr(0, count), lines);
  return count;
}

void LogFollower::show_progress(File& file, base::MonotonicTime now, std::vector<std::string>& lines) {
  const std::string progress = file.splitter.progress();
  if (progress.empty()) {
    file.progress_due.reset();
    return;
  }
  // A bar that completes within the period is shown once, as its final line.
  if (!file.progress_due) file.progress_due = now + kProgressPeriod;
  if (now < *file.progress_due) return;
  file.progress_due = now + kProgressPeriod;
  if (progress != file.progress) lines.push_back(progress);
  file.progress = progress;
}

void LogFollower::drain(File& file, std::vector<std::string>& lines) {
  // Up to the current size: a process that outlives its attempt and keeps printing must not block this loop.
  std::size_t count = read_some(file, lines);
  std::uint64_t end = file.fd.valid() ? size_of(file.fd.get()) : 0;
  while (count > 0 && file.offset < end) count = read_some(file, lines);
  file.splitter.finish(lines);
}

std::vector<std::string> last_lines(const std::string& path, std::size_t count) {
  LogFollower follower;
  follower.follow(0, path, count);
  std::vector<std::string> lines;
  for (auto& line : follower.finish()) lines.push_back(std::move(line.line));
  return lines;
}

}  // namespace trireme::api
