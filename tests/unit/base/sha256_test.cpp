#include "base/sha256.h"

#include <doctest/doctest.h>

#include "base/hex.h"

namespace sha256_test {

using namespace trireme::base;

TEST_CASE("sha256") {
  CHECK(to_hex(sha256("abc")) == "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
}

}  // namespace sha256_test
