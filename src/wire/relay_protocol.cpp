#include "wire/relay_protocol.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <array>

namespace trireme::wire {
namespace {

constexpr std::size_t kHeader = 1 + 4;
constexpr std::size_t kReadSize = std::size_t{16} << 10;
constexpr int kUnsentInKernel = 128 << 10;
// A node that vanishes must not leave its connection until the end of a long run. Its workers are missed long before.
constexpr int kIdleSeconds = 300;
constexpr int kProbeSeconds = 60;

std::array<char, 4> big_endian(std::uint32_t number) {
  return {static_cast<char>(number >> 24), static_cast<char>(number >> 16), static_cast<char>(number >> 8),
          static_cast<char>(number)};
}

std::uint32_t number_in(std::string_view bytes) {
  std::uint32_t number = 0;
  for (const char byte : bytes.substr(0, 4)) number = number << 8 | static_cast<unsigned char>(byte);
  return number;
}

}  // namespace

base::Result<RelayFrame> RelayFrame::parse(std::string_view payload) {
  if (payload.size() < kHeader) return base::error("a frame of a relay has {} bytes", payload.size());
  const int kind = payload.front();
  if (kind < static_cast<int>(Kind::kOpen) || kind > static_cast<int>(Kind::kCredit)) {
    return base::error("a frame of a relay has the unknown kind {}", kind);
  }
  return RelayFrame{static_cast<Kind>(kind), number_in(payload.substr(1)), payload.substr(kHeader)};
}

void RelayFrame::append_to(std::string& out) const {
  const auto length = big_endian(static_cast<std::uint32_t>(kHeader + data.size()));
  const auto number = big_endian(connection);
  out.append(length.data(), length.size());
  out.push_back(static_cast<char>(kind));
  out.append(number.data(), number.size());
  out.append(data);
}

std::string encode_credit(std::uint32_t bytes) {
  const auto number = big_endian(bytes);
  return {number.data(), number.size()};
}

base::Result<std::uint32_t> decode_credit(std::string_view data) {
  if (data.size() != 4) return base::error("a credit of a relay has {} bytes", data.size());
  return number_in(data);
}

// Unix sockets, which tests use, do not know the options of TCP.
void prepare_for_relay(SocketChannel& channel) {
  channel.set_frame_limit(kRelayFrameLimit);
  channel.set_read_size(kReadSize);
  const int socket = channel.socket().native_handle();
  const auto set = [&](int level, int option, int value) {
    (void)::setsockopt(socket, level, option, &value, sizeof value);
  };
  set(IPPROTO_TCP, TCP_NODELAY, 1);
  set(IPPROTO_TCP, TCP_NOTSENT_LOWAT, kUnsentInKernel);
  set(IPPROTO_TCP, TCP_KEEPIDLE, kIdleSeconds);
  set(IPPROTO_TCP, TCP_KEEPINTVL, kProbeSeconds);
  set(SOL_SOCKET, SO_KEEPALIVE, 1);
}

}  // namespace trireme::wire
