#include "data/array_buffers.h"

#include <doctest/doctest.h>
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <vector>

namespace array_buffers_test {

using namespace trireme;
using data::Buffer;

namespace {

std::int64_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  std::int64_t whole = 0, resident = 0;
  statm >> whole >> resident;
  return resident * ::sysconf(_SC_PAGESIZE);
}

}  // namespace

TEST_CASE("buffers are aligned and zero-padded, small and large") {
  for (const std::int64_t bytes : {0L, 1L, 63L, 64L, 1000L, (1L << 20) - 1, (1L << 20) + 1, (5L << 20) + 7}) {
    CAPTURE(bytes);
    const Buffer buffer = Buffer::of(bytes);
    REQUIRE_FALSE(buffer.empty());
    CHECK(buffer.bytes() == bytes);
    CHECK(reinterpret_cast<std::uintptr_t>(buffer.data()) % 64 == 0);
    std::memset(buffer.data(), 1, static_cast<std::size_t>(bytes));
    const std::int64_t padded = (bytes + 63) / 64 * 64;
    for (std::int64_t i = bytes; i < padded; ++i) CHECK(buffer.data()[i] == std::byte{0});
    const Buffer zeroed = Buffer::zeroed(bytes);
    for (std::int64_t i = 0; i < bytes; i += 997) CHECK(zeroed.data()[i] == std::byte{0});
  }
}

TEST_CASE("memory of large buffers is returned to the kernel, whatever is allocated in between") {
  constexpr std::int64_t kEach = 3 << 20;
  std::vector<Buffer> large, small;
  for (int i = 0; i < 40; ++i) {
    large.push_back(Buffer::of(kEach));
    std::memset(large.back().data(), 1, kEach);
    small.push_back(Buffer::of(1000));
  }
  const std::int64_t full = resident_bytes();
  large.clear();
  CHECK(full - resident_bytes() > 30 * kEach);
}

}  // namespace array_buffers_test
