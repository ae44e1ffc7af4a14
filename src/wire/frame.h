#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "base/result.h"

// A frame is a length (4 bytes, most significant first) and that many bytes. Lengths are checked before anything is
// reserved: a stranger's number costs nothing.

namespace trireme::wire {

inline constexpr std::size_t kFrameHeader = 4;
// Before the peer has proved the secret.
inline constexpr std::size_t kHandshakeFrameLimit = 1024;
// What a worker may send: a return value, a broadcast.
inline constexpr std::size_t kWorkerFrameLimit = std::size_t{256} << 20;
// What the controller may send: the pickled function with what it captured.
inline constexpr std::size_t kControllerFrameLimit = std::size_t{1} << 30;

// Appends the frame of `payload` to `out`.
void append_frame(std::string& out, std::string_view payload);

// Takes bytes as they come and gives whole frames. One buffer, reused; it shrinks again after a large frame.
class FrameReader {
 public:
  explicit FrameReader(std::size_t limit) : limit_(limit) {}

  void set_limit(std::size_t limit) { limit_ = limit; }

  // Where the next bytes go, at least one; commit() says how many came.
  std::pair<char*, std::size_t> prepare();
  void commit(std::size_t size);

  // The next whole frame, valid until prepare() is called; nullopt when more bytes are needed; an error when the
  // announced length is beyond the limit.
  base::Result<std::optional<std::string_view>> next();

 private:
  std::size_t limit_;
  std::string buffer_;
  std::size_t begin_ = 0;  // first byte not given out yet
  std::size_t end_ = 0;    // past the last byte received
};

}  // namespace trireme::wire
