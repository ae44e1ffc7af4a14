#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "base/fd.h"
#include "engine/engine.h"
#include "engine/process.h"
#include "trireme/value.h"

// The driver's end of the warm process that Python workers are forked from (python/trireme/_zygote.py). Nothing here
// waits: the owner polls fd() for events() and calls receive() and flush().

namespace trireme::engine {

class Zygote {
 public:
  struct Ready {
    int pid;
  };
  struct Preloaded {
    std::map<std::string, std::string> failed;  // by module
  };
  struct Forked {
    std::uint64_t id;
    Process process;
  };
  struct Refused {
    std::uint64_t id;
    std::string why;
  };
  struct ChildExited {
    int pid;
    ExitStatus status;
  };
  // An import failed midway: the process starts over in a new interpreter, and is Ready again after that.
  struct Replacing {
    std::string module;
    std::string why;
  };
  using Message = std::variant<Ready, Preloaded, Forked, Refused, ChildExited, Replacing>;

  static Result<Zygote> start(const std::vector<std::string>& argv, std::map<std::string, std::string> env);

  int fd() const { return socket_.get(); }
  short events() const;
  const Process& process() const { return process_; }
  // Closes the socket, which tells the zygote to end, and leaves the process to the caller.
  Process release() {
    socket_.reset();
    return std::move(process_);
  }

  // Whether a fork of this process can stand for a fresh one with that environment. Some variables count only when a
  // program starts.
  bool suits(const ProcessSpec& spec) const;

  // Answered with Preloaded. False where all were asked for before, and no answer comes.
  bool preload(const std::vector<std::string>& modules, const std::vector<std::string>& sys_path);
  // Answered with Forked or Refused; ChildExited follows a Forked.
  void fork(std::uint64_t id, const ProcessSpec& spec, base::Fd log);

  // Sends what the socket takes. An error means that the zygote is gone.
  Result<void> flush();
  // What has arrived. Messages before the end come first; the error is repeated by the next call.
  Result<std::vector<Message>> receive();

 private:
  struct Frame {
    std::string bytes;
    std::size_t sent = 0;
    base::Fd fd;  // rides on the first byte
  };

  Zygote(Process process, base::Fd socket, std::map<std::string, std::string> env);
  void send(const Dict& message, base::Fd fd);
  Result<void> read_some(bool& more);
  Result<std::vector<Message>> take_frames();
  Result<Message> decode(const Dict& message);

  Process process_;
  base::Fd socket_;
  std::map<std::string, std::string> env_;
  std::set<std::string> asked_;
  std::deque<Frame> outgoing_;
  std::string incoming_;
  std::deque<base::Fd> received_fds_;  // in the order of the frames that they belong to
};

}  // namespace trireme::engine
