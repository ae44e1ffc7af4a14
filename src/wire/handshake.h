#pragma once

#include <asio/awaitable.hpp>
#include <functional>
#include <string>

#include "wire/channel.h"

// The controller speaks first, with a challenge that is the same length for everybody; the peer answers with a hello
// that proves the secret; the controller proves it in its welcome. Nothing else is read before. docs/wire_protocol.md
// has the bytes.

namespace trireme::wire {

// What the controller thinks of a peer that has proved the secret: how it shall behave, or why it is not wanted.
using Admit = std::function<base::Result<Welcome>(const Hello&)>;

// On success the channel knows its peer.
asio::awaitable<base::Result<void>> greet_as_controller(Channel& channel, std::string secret, Admit admit);
asio::awaitable<base::Result<Welcome>> greet_as_peer(Channel& channel, std::string secret, Hello hello);

}  // namespace trireme::wire
