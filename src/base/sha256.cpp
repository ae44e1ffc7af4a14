#include "base/sha256.h"

#include <openssl/evp.h>

#include "base/check.h"

namespace trireme::base {

std::string sha256(std::string_view bytes) {
  unsigned char digest[EVP_MAX_MD_SIZE];
  unsigned int size = 0;
  int ok = EVP_Digest(bytes.data(), bytes.size(), digest, &size, EVP_sha256(), nullptr);
  TRIREME_CHECK(ok == 1, "SHA-256 is not available");
  return std::string(reinterpret_cast<char*>(digest), size);
}

}  // namespace trireme::base
