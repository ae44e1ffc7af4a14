#pragma once

#include <asio/awaitable.hpp>
#include <asio/io_context.hpp>
#include <memory>
#include <string>

#include "wire/address.h"
#include "wire/channel.h"

namespace trireme::wire {

// A connection on which both sides have proved the secret.
struct Joined {
  std::shared_ptr<SocketChannel> channel;
  Welcome welcome;
};

// `key` is the key that the hello names; without a name, the run's secret.
asio::awaitable<base::Result<Joined>> join(asio::io_context& io, Address address, std::string key, Hello hello);

// A single request, for the command line: connects, sends it and waits for the reply for at most `timeout`.
base::Result<Reply> ask(const std::string& address, const std::string& secret, const std::string& run_id,
                        Message request, std::chrono::milliseconds timeout = std::chrono::seconds(5));

}  // namespace trireme::wire
