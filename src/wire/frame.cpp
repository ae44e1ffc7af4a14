#include "wire/frame.h"

#include <algorithm>
#include <cstring>

#include "base/check.h"

namespace trireme::wire {
namespace {

// Beyond this size, the buffer grows with the bytes received, not with the announced length.
constexpr std::size_t kGrowth = std::size_t{1} << 20;

std::uint32_t read_length(const char* bytes) {
  auto byte = [&](int i) { return static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[i])); };
  return byte(0) << 24 | byte(1) << 16 | byte(2) << 8 | byte(3);
}

}  // namespace

void append_frame(std::string& out, std::string_view payload) {
  TRIREME_CHECK(payload.size() <= kControllerFrameLimit, "a frame of {} bytes is too large for any peer",
                payload.size());
  auto length = static_cast<std::uint32_t>(payload.size());
  const char header[kFrameHeader] = {static_cast<char>(length >> 24), static_cast<char>(length >> 16),
                                     static_cast<char>(length >> 8), static_cast<char>(length)};
  out.append(header, kFrameHeader);
  out.append(payload);
}

std::pair<char*, std::size_t> FrameReader::prepare() {
  if (begin_ > 0) {
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  std::size_t wanted = small_;
  if (end_ >= kFrameHeader) {
    std::size_t frame = kFrameHeader + std::min<std::size_t>(read_length(buffer_.data()), limit_);
    wanted = std::max(wanted, std::min(frame, end_ + kGrowth));
  }
  if (buffer_.size() < wanted) {
    buffer_.resize(wanted);
  } else if (buffer_.size() > kGrowth && wanted == small_ && end_ <= small_) {
    buffer_.resize(small_);
    buffer_.shrink_to_fit();
  }
  if (end_ == buffer_.size()) buffer_.resize(buffer_.size() * 2);
  return {buffer_.data() + end_, buffer_.size() - end_};
}

void FrameReader::commit(std::size_t size) { end_ += size; }

base::Result<std::optional<std::string_view>> FrameReader::next() {
  std::size_t available = end_ - begin_;
  if (available < kFrameHeader) return std::optional<std::string_view>();
  std::size_t length = read_length(buffer_.data() + begin_);
  if (length > limit_) return base::error("a frame of {} bytes is over the limit of {}", length, limit_);
  if (available < kFrameHeader + length) return std::optional<std::string_view>();
  std::string_view payload(buffer_.data() + begin_ + kFrameHeader, length);
  begin_ += kFrameHeader + length;
  return std::optional(payload);
}

}  // namespace trireme::wire
