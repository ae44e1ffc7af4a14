#pragma once

#include <memory>
#include <string>

#include "wire/channel.h"

namespace trireme::wire {

// Receives the events of a server's connections, on the thread that runs its io_context.
class ServerHandler {
 public:
  virtual ~ServerHandler() = default;
  virtual base::Result<Welcome> admit(const Hello& hello) = 0;
  virtual void opened(const std::shared_ptr<Channel>& channel) = 0;
  virtual void received(const std::shared_ptr<Channel>& channel, Message message) = 0;
  virtual void closed(const std::shared_ptr<Channel>& channel, const base::Error& why) = 0;
  // A peer did not prove that it belongs to the run. Called for the first ones only: there may be any number of them.
  virtual void refused([[maybe_unused]] const std::string& from, [[maybe_unused]] const base::Error& why) {}
};

}  // namespace trireme::wire
