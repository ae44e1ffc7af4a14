#pragma once

#include <asio/awaitable.hpp>
#include <functional>
#include <string>

#include "wire/channel.h"

// The controller first sends a challenge, which has the same length in all versions. The peer replies with a hello that
// proves the secret. The controller proves it in its welcome. No other message is read before that.
// docs/wire_protocol.md describes the bytes.

namespace trireme::wire {

// The controller's decision about an authenticated peer: its settings, or why it is refused.
using Admit = std::function<base::Result<Welcome>(const Hello&)>;

// `secret` is the run's, from which the key that the hello names is derived. On success, the channel's peer() is set.
asio::awaitable<base::Result<void>> greet_as_controller(Channel& channel, std::string secret, Admit admit);
asio::awaitable<base::Result<Welcome>> greet_as_peer(Channel& channel, std::string key, Hello hello);

}  // namespace trireme::wire
