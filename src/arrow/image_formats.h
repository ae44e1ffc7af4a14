#pragma once

#include <arrow/status.h>

#include <cstdint>

namespace trireme::arrow {

// An image must not take all of the memory. Height and width as the file has them: decoders may need all pixels even
// where few of them are asked for.
::arrow::Status check_pixels(std::int64_t height, std::int64_t width, std::int64_t most);

}  // namespace trireme::arrow
