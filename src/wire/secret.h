#pragma once

#include <initializer_list>
#include <string>
#include <string_view>

// Proves that a peer belongs to a run. The secret itself is never sent over a connection.

namespace trireme::wire {

inline constexpr std::size_t kSecretSize = 32;

// From the operating system's random generator; throws if it fails.
std::string random_bytes(std::size_t size);

// The key of one peer, derived from the secret of its run. Only the controller can derive keys: a peer that knows its
// own can pose neither as another peer nor as the controller. Without a name: the secret itself, which the commands of
// the run's user have.
std::string key_of(std::string_view secret, std::string_view name);

// HMAC-SHA256 over the parts, each preceded by its length, so that different lists of parts never produce the same
// input.
std::string prove(std::string_view secret, std::initializer_list<std::string_view> parts);

// Constant-time comparison.
bool same_proof(std::string_view a, std::string_view b);

}  // namespace trireme::wire
