#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>

#include "base/result.h"
#include "wire/channel.h"

// What a relay (relay.h) and a controller (relay_link.h) exchange after their greeting: the connections of many workers
// in one. docs/wire_protocol.md describes the bytes.

namespace trireme::wire {

// Of a Hello.
inline constexpr const char* kRelayRole = "relay";

// Bytes of one connection in one frame: a large message is sent in pieces, between which those of others are sent.
inline constexpr std::size_t kRelayPiece = std::size_t{64} << 10;
inline constexpr std::size_t kRelayFrameLimit = 1 + 4 + kRelayPiece;
// Bytes that a relay holds for a worker that does not read them. The controller keeps the others.
inline constexpr std::size_t kRelayWindow = std::size_t{1} << 20;
// Bytes for one write, of all connections. While more wait, a relay reads nothing from its workers.
inline constexpr std::size_t kRelayBatch = std::size_t{256} << 10;

struct RelayFrame {
  enum class Kind : char {
    kOpen = 1,    // relay: a worker has connected; the controller greets it
    kData = 2,    // bytes of its connection, in either direction
    kClose = 3,   // it is closed
    kCredit = 4,  // relay: the worker has read this number of bytes
  };
  Kind kind = Kind::kData;
  std::uint32_t connection = 0;  // counts the connections of the relay
  std::string_view data;

  static base::Result<RelayFrame> parse(std::string_view payload);
  void append_to(std::string& out) const;
};

std::string encode_credit(std::uint32_t bytes);
base::Result<std::uint32_t> decode_credit(std::string_view data);

// Large reads, no delays, and a limited queue in the kernel, in which small messages would wait behind large ones.
void prepare_for_relay(SocketChannel& channel);

}  // namespace trireme::wire
