#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace trireme::base {

std::string join(const std::vector<std::string>& parts, std::string_view separator);

// "; did you mean 'num_workers'?" if one of the names is similar, otherwise "".
std::string did_you_mean(std::string_view written, const std::vector<std::string>& names);

// "1 worker", "4 workers".
std::string count_of(std::size_t count, std::string_view noun);

// Formats resource amounts: 2 -> "2", 0.5 -> "0.5".
std::string amount(double value);

// {0,1,2,5} -> "0-2,5".
std::string rank_list(std::vector<int> ranks);

// "1GB" -> 1000000000, "512MiB" -> 536870912, "100" -> 100; nullopt if the text is not an amount of memory.
std::optional<std::int64_t> parse_bytes(std::string_view text);

// Truncated to this many bytes, between two characters, with a note of what is missing.
std::string shortened(std::string text, std::size_t longest);

std::vector<std::string> split(std::string_view text, char separator);
std::string_view trim(std::string_view text);

bool is_utf8(std::string_view text);

}  // namespace trireme::base
