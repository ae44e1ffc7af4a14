#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

// What proves that a peer belongs to a run. The secret itself never crosses a connection.

namespace trireme::wire {

inline constexpr std::size_t kSecretSize = 32;

// From the operating system's generator; throws where there is none.
std::string random_bytes(std::size_t size);

// HMAC-SHA256 over the parts; each is preceded by its length, so that no two lists of parts look alike.
std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts);

// Takes the same time wherever the two differ.
bool same_proof(std::string_view a, std::string_view b);

std::string sha256(std::string_view bytes);

}  // namespace trireme::wire
