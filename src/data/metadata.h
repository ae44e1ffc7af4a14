#pragma once

#include <optional>
#include <string_view>

// The keys and values that an ArrowSchema carries: "ARROW:extension:name" and whatever users put there.

namespace trireme::data {

// All of it, to be copied. Empty where there is none, or it is broken.
std::string_view metadata_bytes(const char* metadata);

std::optional<std::string_view> find_metadata(const char* metadata, std::string_view key);

}  // namespace trireme::data
