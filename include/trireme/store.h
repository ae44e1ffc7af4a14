#pragma once

#include <chrono>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

#include "trireme/export.h"

// The rendezvous store of a gang, for use inside a training function: one rank sets keys, others wait for them. The
// controller holds it, so it outlives any rank and needs no port. Every attempt starts with an empty store. Outside of
// a training function, and in local mode, each of these throws std::runtime_error.

namespace trireme::store {

// Thrown when a wait times out.
class TRIREME_API Timeout : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

inline constexpr std::chrono::milliseconds kDefaultTimeout = std::chrono::minutes(5);

TRIREME_API void set(const std::string& key, const std::string& value);
// Waits until the key is set.
TRIREME_API std::string get(const std::string& key, std::chrono::milliseconds timeout = kDefaultTimeout);
// Waits until all keys are set and returns their values.
TRIREME_API std::vector<std::string> multi_get(const std::vector<std::string>& keys,
                                               std::chrono::milliseconds timeout = kDefaultTimeout);
// Adds to the end of the value; an absent key counts as empty.
TRIREME_API void append(const std::string& key, const std::string& value);
// Adds to a number (0 if the key is absent) and returns the sum.
TRIREME_API std::int64_t add(const std::string& key, std::int64_t amount);
TRIREME_API void wait(const std::vector<std::string>& keys, std::chrono::milliseconds timeout = kDefaultTimeout);
// Whether all of them are set now.
TRIREME_API bool contains(const std::vector<std::string>& keys);
// Returns whether the key was set.
TRIREME_API bool erase(const std::string& key);
// Sets the key to `desired` if it holds `expected`, or if it is absent and `expected` is empty. Returns the value that
// the key holds afterwards.
TRIREME_API std::string compare_set(const std::string& key, const std::string& expected, const std::string& desired);
TRIREME_API std::int64_t size();

}  // namespace trireme::store
