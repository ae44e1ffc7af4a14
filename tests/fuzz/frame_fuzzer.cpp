#include <algorithm>
#include <cstring>

#include "fuzz/fuzzer.h"
#include "wire/frame.h"

namespace frame_fuzzer {

using trireme::wire::append_frame;
using trireme::wire::FrameReader;

// The first byte sets the size of the chunks in which the others arrive.
void fuzz(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return;
  constexpr std::size_t kLimit = 4096;
  const std::size_t piece = 1 + data[0] % 64;
  const std::string_view all = as_text(data + 1, size - 1);
  FrameReader reader(kLimit);
  std::string seen;
  for (std::string_view rest = all; !rest.empty();) {
    auto [room, room_size] = reader.prepare();
    expect(room_size > 0, "there is always room");
    expect(room_size <= 2 * (kLimit + 1024), "an announced length reserves nothing");
    const std::size_t count = std::min({rest.size(), room_size, piece});
    std::memcpy(room, rest.data(), count);
    reader.commit(count);
    rest.remove_prefix(count);
    while (true) {
      auto frame = reader.next();
      if (!frame) {
        expect(all.starts_with(seen), "frames equal the sent ones");
        expect(!reader.next(), "a broken stream stays broken");
        return;
      }
      if (!*frame) break;
      expect((*frame)->size() <= kLimit, "no frame is over the limit");
      append_frame(seen, **frame);
    }
  }
  expect(all.starts_with(seen), "frames equal the sent ones");
}

std::vector<std::string> seeds() {
  std::vector<std::string> made;
  for (std::size_t size : {0, 1, 5, 100, 1020, 1024, 4096, 4097}) {
    std::string text(1, static_cast<char>(size));
    append_frame(text, std::string(size, 'x'));
    append_frame(text, "second");
    made.push_back(std::move(text));
  }
  return made;
}

TRIREME_FUZZER(frame);

}  // namespace frame_fuzzer
