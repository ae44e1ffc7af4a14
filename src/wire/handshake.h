#pragma once

#include <asio/awaitable.hpp>
#include <functional>
#include <string>

#include "wire/channel.h"

// The controller first sends a challenge, which has the same length in all versions. The peer replies with a hello that
// proves the secret. The controller proves it in its welcome. No other message is read before that.
// docs/wire_protocol.md describes the bytes.

namespace trireme::wire {

// Parts of the time that a peer has for its greeting, each measured by itself. While the controller is suspended, only
// one of them can pass.
inline constexpr int kGreetingParts = 10;

// The controller's decision about an authenticated peer: its settings, or why it is refused.
using Admit = std::function<base::Result<Welcome>(const Hello&)>;

// The controller's side. `secret` is the run's, from which the key that the hello names is derived.
class Greeting {
 public:
  explicit Greeting(std::string secret);

  // The first payload that the peer gets.
  std::string challenge() const;
  // Takes the peer's first message. On success, the welcome is sent and the channel's peer() is set.
  base::Result<void> take(Message first, Channel& channel, const Admit& admit) const;

 private:
  std::string secret_;
  std::string nonce_;
};

asio::awaitable<base::Result<void>> greet_as_controller(SocketChannel& channel, std::string secret, Admit admit);
asio::awaitable<base::Result<Welcome>> greet_as_peer(SocketChannel& channel, std::string key, Hello hello);

// What a relay sends instead of a challenge if it cannot reach the controller.
std::string no_challenge(std::string_view why);

}  // namespace trireme::wire
