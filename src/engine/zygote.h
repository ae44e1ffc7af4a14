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

// The driver's end of the connection to the warm process that Python workers are forked from
// (python/trireme/_zygote.py). Nothing here blocks: the owner polls fd() for events() and calls receive() and flush().

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
  // An import failed midway or initialized CUDA: the process restarts in a new interpreter and then sends Ready again.
  struct Replacing {
    std::string module;
    std::string why;
  };
  using Message = std::variant<Ready, Preloaded, Forked, Refused, ChildExited, Replacing>;

  static Result<Zygote> start(const std::vector<std::string>& argv, std::map<std::string, std::string> env);

  int fd() const { return socket_.get(); }
  short events() const;
  const Process& process() const { return process_; }
  // Closes the socket, which makes the zygote exit, and hands the process over to the caller.
  Process release() {
    socket_.reset();
    return std::move(process_);
  }

  // Whether a fork of this process is equivalent to a new process with that environment. Some variables only take
  // effect at program start.
  bool suits(const ProcessSpec& spec) const;

  // Answered with Preloaded. Returns false if all modules were requested before; no answer follows. env: of the driver
  // now; frameworks that are not imported yet read some of its variables.
  bool preload(const std::vector<std::string>& modules, const std::vector<std::string>& sys_path,
               const std::map<std::string, std::string>& env = {});
  // Answered with Forked or Refused; ChildExited follows a Forked.
  void fork(std::uint64_t id, const ProcessSpec& spec, base::Fd log);

  // Sends as much as the socket takes. An error means that the zygote has exited.
  Result<void> flush();
  // Messages that have arrived. Messages before the end of the stream are returned first; the next call returns the
  // error.
  Result<std::vector<Message>> receive();

 private:
  struct Frame {
    std::string bytes;
    std::size_t sent = 0;
    base::Fd fd;  // sent with the first byte
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
  std::deque<base::Fd> received_fds_;  // in the order of the frames they belong to
};

}  // namespace trireme::engine
