#pragma once

#include <arrow/status.h>

#include <cstdint>

namespace trireme::arrow {

// An image must not take all of the memory.
::arrow::Status check_pixels(std::int64_t height, std::int64_t width);

}  // namespace trireme::arrow
