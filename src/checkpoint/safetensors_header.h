#pragma once

#include <string_view>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {

// Parses the JSON of a header; offsets are as in the file. A duplicate name is an error.
base::Result<void> read_entries(std::string_view text, Header& header);

}  // namespace trireme::checkpoint
