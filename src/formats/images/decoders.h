#pragma once

#include <cstdint>

#include "base/result.h"

namespace trireme::formats {

// An image must not use up the memory. Height and width are those of the file: decoders may need all pixels even if few
// of them are requested.
base::Result<void> check_pixels(std::int64_t height, std::int64_t width, std::int64_t most);

}  // namespace trireme::formats
