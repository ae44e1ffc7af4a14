#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::storage {

// XXH3 of 64 bits over bytes that come in pieces. It finds damage, not forgery.
class Digest {
 public:
  Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void add(std::string_view bytes);
  // 16 hex digits, what `xxhsum -H3` prints.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::string_view bytes);

}  // namespace trireme::storage
