#pragma once

#include <arrow/result.h>

#include <cstdint>
#include <string>

#include "trireme/value.h"

namespace trireme::dataset {

// A file of a WebDataset sample as text, number, JSON, array or image, depending on its suffix; otherwise as bytes.
::arrow::Result<Value> sample_value(const std::string& suffix, std::string content, bool decode,
                                    std::int64_t max_pixels);

}  // namespace trireme::dataset
