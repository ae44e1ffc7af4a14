#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace trireme::storage {

// 64-bit XXH3, computed incrementally. Detects damage, not forgery.
class Digest {
 public:
  Digest();
  Digest(Digest&&) noexcept;
  Digest& operator=(Digest&&) noexcept;
  ~Digest();

  void add(std::string_view bytes);
  // 16 hex digits, as printed by `xxhsum -H3`.
  std::string hex() const;

 private:
  struct State;
  std::unique_ptr<State> state_;
};

std::string digest_of(std::string_view bytes);

}  // namespace trireme::storage
