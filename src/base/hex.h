#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace trireme::base {

std::string to_hex(std::string_view bytes);
// nullopt if the text is not an even number of hex digits.
std::optional<std::string> from_hex(std::string_view text);

}  // namespace trireme::base
