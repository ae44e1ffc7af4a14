#pragma once

#include <arrow/result.h>

#include <cstdint>
#include <string>

#include "trireme/value.h"

namespace trireme::arrow {

// A file of a WebDataset sample: text, a number, what JSON has, an array or an image, by its suffix; bytes otherwise.
::arrow::Result<Value> sample_value(const std::string& suffix, std::string content, bool decode,
                                    std::int64_t max_pixels);

}  // namespace trireme::arrow
