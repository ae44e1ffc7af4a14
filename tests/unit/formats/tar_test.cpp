#include "formats/tar.h"

#include <doctest/doctest.h>

#include <cstring>

#include "tar_bytes.h"

namespace tar_test {

using namespace trireme;
using namespace trireme::formats;
using trireme::test::tar_member;

namespace {

// "name=content" of the files, or the error.
std::vector<std::string> read(std::string_view bytes) {
  TarReader tar([&](char* out, std::size_t size) -> base::Result<std::size_t> {
    const std::size_t count = std::min(size, bytes.size());
    std::memcpy(out, bytes.data(), count);
    bytes.remove_prefix(count);
    return count;
  });
  std::vector<std::string> found;
  while (true) {
    auto member = tar.next();
    if (!member) found.push_back(member.error().message());
    if (!member || !*member) return found;
    if (!(*member)->file) continue;
    auto content = tar.content();
    if (!content) return {content.error().message()};
    found.push_back((*member)->name + "=" + *content);
  }
}

using Found = std::vector<std::string>;

}  // namespace

TEST_CASE("files of a tar, with long names") {
  const std::string end(1024, '\0');
  const std::string long_name = std::string(150, 'd') + "/x.txt";
  const std::string pax = "162 path=" + long_name + "\n";
  CHECK(read(tar_member("a.txt", "hello") + tar_member("b/", "", '5') + tar_member("b/c", "") + end) ==
        Found{"a.txt=hello", "b/c="});
  CHECK(read(tar_member("././@LongLink", long_name + '\0', 'L') + tar_member("dd", "1") + tar_member("e", "2") + end) ==
        Found{long_name + "=1", "e=2"});
  REQUIRE(pax.size() == 166);
  CHECK(read(tar_member("pax", "166 path=" + long_name + "\n", 'x') + tar_member("dd", "1") + end) ==
        Found{long_name + "=1"});
  CHECK(read(end) == Found{});
}

TEST_CASE("an invalid tar file is an error") {
  const std::string good = tar_member("a.txt", "hello");
  CHECK(read("") == Found{"it is empty"});
  std::string flipped = good;
  flipped[3] ^= 1;
  CHECK(read(flipped) == Found{"a header is corrupt"});
  CHECK(read(good.substr(0, 600)) == Found{"a.txt=hello", "it is truncated"});
  CHECK(read(good.substr(0, 514)) == Found{"it is truncated"});
  CHECK(read(good.substr(0, 100)) == Found{"it is truncated"});
  CHECK(read(tar_member("x", "9 path=\n", 'x')) == Found{"a pax header is corrupt"});
  CHECK(read(tar_member("x", "22 GNU.sparse.major=1\n", 'x') + tar_member("a", "1")) ==
        Found{"a is a sparse file, which is not supported"});
  // More than a column holds, however large a compressed file unpacks.
  CHECK(read(tar_member("x", "19 size=2147483648\n", 'x') + tar_member("a", "1")) ==
        Found{"a member has 2147483648 bytes, more than the limit of 2147483647"});
}

}  // namespace tar_test
