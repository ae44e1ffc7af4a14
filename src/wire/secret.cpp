#include "wire/secret.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>
#include <openssl/rand.h>

#include "base/check.h"

namespace trireme::wire {
namespace {

const unsigned char* as_bytes(std::string_view text) { return reinterpret_cast<const unsigned char*>(text.data()); }

}  // namespace

std::string random_bytes(std::size_t size) {
  std::string bytes(size, '\0');
  int ok = RAND_bytes(reinterpret_cast<unsigned char*>(bytes.data()), static_cast<int>(size));
  TRIREME_CHECK(ok == 1, "the random generator of the system failed");
  return bytes;
}

std::string key_of(std::string_view secret, std::string_view name) {
  return name.empty() ? std::string(secret) : prove(secret, {"key", name});
}

std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts) {
  std::string text;
  for (auto part : parts) {
    text += fmt::format("{}:", part.size());
    text += part;
  }
  unsigned char proof[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  const auto* made =
      HMAC(EVP_sha256(), secret.data(), static_cast<int>(secret.size()), as_bytes(text), text.size(), proof, &size);
  TRIREME_CHECK(made != nullptr, "HMAC-SHA256 is not available");
  return std::string(reinterpret_cast<char*>(proof), size);
}

bool same_proof(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace trireme::wire
