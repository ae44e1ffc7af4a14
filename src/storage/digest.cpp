#include "storage/digest.h"

#include <fmt/format.h>
#include <xxhash.h>

namespace trireme::storage {

struct Digest::State {
  XXH3_state_t xxh3;
};

Digest::Digest() : state_(std::make_unique<State>()) { XXH3_64bits_reset(&state_->xxh3); }
Digest::Digest(Digest&&) noexcept = default;
Digest& Digest::operator=(Digest&&) noexcept = default;
Digest::~Digest() = default;

void Digest::add(std::string_view bytes) { XXH3_64bits_update(&state_->xxh3, bytes.data(), bytes.size()); }

std::string Digest::hex() const { return fmt::format("{:016x}", XXH3_64bits_digest(&state_->xxh3)); }

std::string digest_of(std::string_view bytes) {
  return fmt::format("{:016x}", XXH3_64bits(bytes.data(), bytes.size()));
}

}  // namespace trireme::storage
