#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "base/lock_file.h"
#include "base/result.h"

// The output of workers on a node without the driver's file system. A worker writes its log below a scratch folder, at
// the path that the log has on the driver's machine; the forwarder sends what is new.

namespace trireme::agent {

class LogForwarder {
 public:
  // `send`: the path on the driver's machine, and the bytes to append.
  using Send = std::function<void(const std::string& path, std::string data)>;

  // Creates the scratch folder, and removes those of agents that were killed.
  static base::Result<LogForwarder> create(Send send);
  LogForwarder(LogForwarder&&) = default;
  LogForwarder& operator=(LogForwarder&&) = default;
  // Removes the folder.
  ~LogForwarder();

  const std::filesystem::path& root() const { return root_; }
  // Where the worker writes the log of this path. Creates its folder; later logs beside it are found by themselves.
  base::Result<std::string> add(const std::string& path);
  // Sends what is new, at most `limit` bytes of each file. Returns whether a file has more.
  bool forward(std::size_t limit);
  void forward_all();

 private:
  LogForwarder(std::filesystem::path root, base::LockFile lock, Send send);
  bool forward(const std::string& path, std::size_t limit);

  std::filesystem::path root_;
  base::LockFile lock_;
  Send send_;
  // Folders of logs, on the driver's machine: a worker that is kept opens a new log in `attempt_2` beside `attempt_1`.
  std::set<std::string> folders_;
  std::map<std::string, std::uint64_t> sent_;  // bytes, by path
};

}  // namespace trireme::agent
