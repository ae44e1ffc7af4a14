#pragma once

#include <optional>
#include <string_view>

// The key-value metadata of an ArrowSchema: "ARROW:extension:name" and user entries.

namespace trireme::data {

// The encoded metadata, to be copied. Empty if there is none or it is invalid.
std::string_view metadata_bytes(const char* metadata);

std::optional<std::string_view> find_metadata(const char* metadata, std::string_view key);

}  // namespace trireme::data
