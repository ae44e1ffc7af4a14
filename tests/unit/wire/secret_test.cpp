#include "wire/secret.h"

#include <doctest/doctest.h>

#include "base/hex.h"

namespace secret_test {

using namespace trireme;
using namespace trireme::wire;

TEST_CASE("random bytes have the requested size and differ") {
  CHECK(random_bytes(0).empty());
  CHECK(random_bytes(32).size() == 32);
  CHECK(random_bytes(32) != random_bytes(32));
}

TEST_CASE("a proof depends on the secret and on every part") {
  const std::string proof = prove("secret", {"ab", "c"});
  CHECK(proof.size() == 32);
  CHECK(proof == prove("secret", {"ab", "c"}));
  CHECK(proof != prove("Secret", {"ab", "c"}));
  CHECK(proof != prove("secret", {"ab", "d"}));
  CHECK(proof != prove("secret", {"c", "ab"}));
  // Moving the boundary between two parts changes the proof.
  CHECK(proof != prove("secret", {"a", "bc"}));
  CHECK(proof != prove("secret", {"abc"}));
  CHECK(proof != prove("secret", {"ab", "c", ""}));
  // HMAC-SHA256 of "2:ab1:c", as any other implementation computes it.
  CHECK(base::to_hex(proof) == "4ace05386ed18861d573a09b316620f2a42d8d669f6252941597852930672965");
}

TEST_CASE("every name has its own key, and the secret itself has none") {
  const std::string key = key_of("secret", "worker/0/1");
  CHECK(key.size() == 32);
  CHECK(key == key_of("secret", "worker/0/1"));
  CHECK(key != key_of("secret", "worker/0/2"));
  CHECK(key != key_of("Secret", "worker/0/1"));
  CHECK(key_of("secret", "") == "secret");
  // Not a proof that a peer could ask for.
  CHECK(key != prove("secret", {"worker/0/1"}));
}

TEST_CASE("proofs are compared completely") {
  CHECK(same_proof("", ""));
  CHECK(same_proof("abc", "abc"));
  CHECK_FALSE(same_proof("abc", "abd"));
  CHECK_FALSE(same_proof("abc", "ab"));
  CHECK_FALSE(same_proof("abc", ""));
}

}  // namespace secret_test
