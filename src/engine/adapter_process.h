#pragma once

#include <asio/io_context.hpp>
#include <asio/local/stream_protocol.hpp>
#include <asio/streambuf.hpp>
#include <deque>
#include <filesystem>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "engine/process.h"
#include "trireme/value.h"

// The process of an engine adapter, which knows a cluster. Both sides send one JSON object per line over a socket pair;
// docs/engines.md describes them. Used by the thread of the io_context.

namespace trireme::engine {

class AdapterProcess {
 public:
  struct Owner {
    std::function<void(Dict event)> event;
    std::function<void(std::string why)> gone;  // it has ended, or (with a reason) sent something that is not JSON
  };

  // Its standard error goes to the file `log`. It is not killed when this process dies: it has to release what it has
  // reserved first.
  static Result<std::unique_ptr<AdapterProcess>> start(asio::io_context& io, std::vector<std::string> argv,
                                                       const std::filesystem::path& log, Owner owner);
  ~AdapterProcess();

  void send(const Dict& request);
  // Closes the socket and waits until the process has ended; kills it after `patience`.
  void end(base::Seconds patience);
  // "ended with exit code 1; last lines of ...", for messages.
  std::string epitaph();

 private:
  AdapterProcess(asio::io_context& io, Process process, base::Fd socket, std::filesystem::path log, Owner owner);
  void read();
  void write();
  void lose(std::string why);
  bool wait(base::Seconds patience);

  // Longer lines are not from an adapter.
  static constexpr std::size_t kLongestLine = std::size_t{64} << 20;

  Process process_;
  asio::local::stream_protocol::socket socket_;
  asio::streambuf received_{kLongestLine};
  std::deque<std::string> queued_;
  std::filesystem::path log_;
  Owner owner_;
  std::optional<ExitStatus> status_;
};

}  // namespace trireme::engine
