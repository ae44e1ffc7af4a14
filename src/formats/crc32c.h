#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::formats {

// Castagnoli's CRC-32 (RFC 3720), with the processor's instruction if available.
std::uint32_t crc32c(std::string_view bytes);

}  // namespace trireme::formats
