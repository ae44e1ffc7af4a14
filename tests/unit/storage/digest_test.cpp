#include "storage/digest.h"

#include <doctest/doctest.h>

namespace digest_test {

using namespace trireme::storage;

TEST_CASE("a digest equals the output of xxhsum -H3, for any chunking") {
  CHECK(digest_of("") == "2d06800538d394c2");
  CHECK(digest_of("abc") == "78af5f94892f3950");
  std::string text;
  for (int i = 0; i < 100000; ++i) text += static_cast<char>(i * 7);
  for (std::size_t piece : {1u, 7u, 255u, 4096u, 100000u}) {
    Digest digest;
    for (std::size_t at = 0; at < text.size(); at += piece) digest.add(std::string_view(text).substr(at, piece));
    CHECK(digest.hex() == digest_of(text));
  }
  text[50000] ^= 1;
  Digest changed;
  changed.add(text);
  text[50000] ^= 1;
  CHECK(changed.hex() != digest_of(text));
}

}  // namespace digest_test
