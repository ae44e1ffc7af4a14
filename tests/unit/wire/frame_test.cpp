#include "wire/frame.h"

#include <doctest/doctest.h>

#include <algorithm>
#include <cstring>
#include <functional>
#include <random>
#include <vector>

#include "base/check.h"

namespace frame_test {

using namespace trireme::wire;

namespace {

std::string frame_of(std::string_view payload) {
  std::string bytes;
  append_frame(bytes, payload);
  return bytes;
}

// Passes the bytes in pieces and collects the frames.
std::vector<std::string> feed(FrameReader& reader, std::string_view bytes, const std::function<std::size_t()>& piece) {
  std::vector<std::string> frames;
  while (!bytes.empty()) {
    auto [data, room] = reader.prepare();
    REQUIRE(room > 0);
    const std::size_t count = std::min({bytes.size(), room, piece()});
    std::memcpy(data, bytes.data(), count);
    reader.commit(count);
    bytes.remove_prefix(count);
    for (auto frame = reader.next();; frame = reader.next()) {
      REQUIRE(frame);
      if (!*frame) break;
      frames.emplace_back(**frame);
    }
  }
  return frames;
}

}  // namespace

TEST_CASE("a frame is a big-endian length and the payload") {
  CHECK(frame_of("abc") == std::string("\0\0\0\3abc", 7));
  CHECK(frame_of("") == std::string(4, '\0'));
  CHECK(frame_of(std::string(0x010203, 'x')).substr(0, 4) == std::string("\0\1\2\3", 4));
}

TEST_CASE("frames are complete for any chunking of the bytes") {
  std::mt19937 random(7);
  std::vector<std::string> sent;
  std::string bytes;
  for (std::size_t size : {0, 1, 3, 1019, 1020, 1021, 1024, 4096, 70000, 0, 5, 1 << 21, 1, 2}) {
    std::string payload(size, '\0');
    for (char& each : payload) each = static_cast<char>(random());
    append_frame(bytes, payload);
    sent.push_back(std::move(payload));
  }
  SUBCASE("byte by byte") {
    FrameReader reader(1 << 22);
    // Large frames would only make this slow.
    std::string small;
    std::vector<std::string> few(sent.begin(), sent.begin() + 8);
    for (const auto& payload : few) append_frame(small, payload);
    CHECK(feed(reader, small, [] { return 1; }) == few);
  }
  SUBCASE("in pieces of any size") {
    for (int round = 0; round < 15; ++round) {
      FrameReader reader(1 << 22);
      std::uniform_int_distribution<std::size_t> piece(1, std::size_t{64} << round);
      CHECK(feed(reader, bytes, [&] { return piece(random); }) == sent);
    }
  }
  SUBCASE("as many bytes as fit") {
    FrameReader reader(1 << 22);
    CHECK(feed(reader, bytes, [] { return std::size_t{1} << 30; }) == sent);
  }
}

TEST_CASE("a frame may be as long as the limit but not longer") {
  FrameReader reader(16);
  CHECK(feed(reader, frame_of("0123456789abcdef"), [] { return 1000; }).size() == 1);

  const std::string bytes = frame_of("good") + frame_of("0123456789abcdefg");
  auto [data, room] = reader.prepare();
  REQUIRE(room >= bytes.size());
  std::memcpy(data, bytes.data(), bytes.size());
  reader.commit(bytes.size());
  auto first = reader.next();
  REQUIRE(first);
  CHECK(**first == "good");
  auto second = reader.next();
  REQUIRE_FALSE(second);
  CHECK(second.error().message() == "a frame of 17 bytes is over the limit of 16");
  // The error is permanent: the next frame cannot be found.
  CHECK_FALSE(reader.next());
}

TEST_CASE("an announced length reserves no memory") {
  FrameReader reader(std::size_t{1} << 30);
  const std::string header("\x3f\xff\xff\xff", 4);
  auto [data, room] = reader.prepare();
  std::memcpy(data, header.data(), header.size());
  reader.commit(header.size());
  auto frame = reader.next();
  REQUIRE(frame);
  CHECK_FALSE(*frame);
  CHECK(reader.prepare().second <= std::size_t{2} << 20);
}

TEST_CASE("the buffer shrinks after a large frame") {
  FrameReader reader(std::size_t{1} << 24);
  CHECK(feed(reader, frame_of(std::string(8 << 20, 'x')), [] { return 1 << 16; }).size() == 1);
  reader.prepare();
  CHECK(reader.prepare().second <= 4096);
}

TEST_CASE("a frame that is too large for any peer is not created") {
  std::string out;
  const std::string_view huge(out.data(), kControllerFrameLimit + 1);  // only its size is used
  CHECK_THROWS_AS(append_frame(out, huge), trireme::base::BrokenInvariant);
  CHECK(out.empty());
}

}  // namespace frame_test
