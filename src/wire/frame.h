#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// A frame is a length (4 bytes, big-endian) and that number of bytes. Lengths are checked before memory is reserved, so
// an unauthenticated peer cannot exhaust it.

namespace trireme::wire {

inline constexpr std::size_t kFrameHeader = 4;
// Until the peer has proved the secret.
inline constexpr std::size_t kHandshakeFrameLimit = 1024;
// For workers, which send return values and broadcasts.
inline constexpr std::size_t kWorkerFrameLimit = std::size_t{256} << 20;
// For the controller, which sends the pickled function with its captured values.
inline constexpr std::size_t kControllerFrameLimit = std::size_t{1} << 30;

// Appends `payload` as a frame to `out`.
void append_frame(std::string& out, std::string_view payload);

// Splits a stream of bytes into frames. Uses one buffer, which shrinks again after a large frame.
class FrameReader {
 public:
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void set_limit(std::size_t limit) { limit_ = limit; }
  // The size of the buffer while no larger frame is read.
  void set_small_buffer(std::size_t size) { small_ = size; }

  // The buffer for the next bytes, at least one; call commit() with the number received.
  std::pair<char*, std::size_t> prepare();
  void commit(std::size_t size);

  // The next complete frame, valid until prepare() is called; nullopt if more bytes are needed; an error if the
  // announced length is over the limit.
  base::Result<std::optional<std::string_view>> next();

 private:
  std::size_t limit_;
  std::size_t small_ = 1024;  // most frames have a few hundred bytes, and there may be ten thousand connections
  std::string buffer_;
  std::size_t begin_ = 0;  // first byte not yet returned
  std::size_t end_ = 0;    // past the last byte received
};

}  // namespace trireme::wire
