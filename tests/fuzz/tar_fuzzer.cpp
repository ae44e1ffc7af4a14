#include <algorithm>
#include <cstring>

#include "formats/tar.h"
#include "fuzz/fuzzer.h"
#include "tar_bytes.h"

namespace tar_fuzzer {

using namespace trireme;
using namespace trireme::formats;

void fuzz(const std::uint8_t* data, std::size_t size) {
  std::string_view rest = as_text(data, size);
  TarReader tar([&](char* out, std::size_t wanted) -> base::Result<std::size_t> {
    const std::size_t count = std::min(wanted, rest.size());
    std::memcpy(out, rest.data(), count);
    rest.remove_prefix(count);
    return count;
  });
  for (std::size_t members = 0;; ++members) {
    expect(members * 512 <= size, "a member takes at least one block");
    auto member = tar.next();
    if (!member) {
      expect(!member.error().message().empty(), "an error has a message");
      return;
    }
    if (!*member) return;
    if (members % 2 == 1) continue;  // left out
    const auto content = tar.content();
    if (!content) return;
    expect(content->size() == (*member)->size, "the content has the stated length");
  }
}

std::vector<std::string> seeds() {
  using test::tar_member;
  const std::string end(1024, '\0');
  return {tar_member("a.txt", "hello") + tar_member("dir/b.json", "{}") + end,
          tar_member("dir/", "", '5') + tar_member("x", std::string(700, 'x')) + end,
          tar_member("long", std::string(120, 'n') + '\0', 'L') + tar_member("short", "1") + end,
          tar_member("pax", "18 path=some/name\n9 size=2\n", 'x') + tar_member("short", "12") + end, end};
}

TRIREME_FUZZER(tar);

}  // namespace tar_fuzzer
