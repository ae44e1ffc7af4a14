#pragma once

#include <sys/types.h>

#include <chrono>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/result.h"
#include "wire/address.h"
#include "wire/message.h"

namespace trireme::wire {

// Sends FileRequests to one process and waits for the answers, on the threads of the callers: each call in progress has
// a connection of its own. Thread-safe.
class FileClient {
 public:
  struct Peer {
    std::string what;  // for messages: "the driver's storage"
    Address address;
    std::string secret;  // or the key that the hello names
    Hello hello;
    // A peer that does not answer for this long is lost. 0: waits until the connection breaks.
    std::chrono::milliseconds patience{0};
    // With patience: asked several times a second while a call waits; true ends it.
    std::function<bool()> gone = {};
  };
  explicit FileClient(Peer peer);
  ~FileClient();

  // The peer's answer; or its reason for refusing the request, or why it could not be asked.
  base::Result<Value> call(FileRequest request);

 private:
  class Connection;

  base::Result<std::unique_ptr<Connection>> take();
  void give_back(std::unique_ptr<Connection> connection);

  const Peer peer_;
  const pid_t process_;  // a forked copy must not use the connections
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<Connection>> idle_;
  std::size_t in_use_ = 0;
};

}  // namespace trireme::wire
