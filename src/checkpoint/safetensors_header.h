#pragma once

#include <string_view>

#include "base/result.h"
#include "checkpoint/safetensors.h"

namespace trireme::checkpoint {

// The JSON of a header, with the offsets as they stand there. A name that comes twice is an error.
base::Result<void> read_entries(std::string_view text, Header& header);

}  // namespace trireme::checkpoint
