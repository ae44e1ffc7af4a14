#pragma once

#include <string>
#include <string_view>

namespace trireme::base {

// The digest, 32 bytes.
std::string sha256(std::string_view bytes);

}  // namespace trireme::base
