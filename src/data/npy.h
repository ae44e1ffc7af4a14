#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/export.h"
#include "trireme/tensor.h"

namespace trireme::data {

// What a .npy file of numbers or booleans says of itself.
struct NpyHeader {
  DType dtype = DType::kF32;
  bool swapped = false;  // the highest byte comes first
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // of the values

  // Of the values in all; fits into 64 bits.
  TRIREME_API std::int64_t value_bytes() const;
};

// From the first bytes of a file, versions 1 to 3. The size that it takes when they are not enough.
struct NpyPrefix {
  std::optional<NpyHeader> header;
  std::int64_t needed = 0;
};
TRIREME_API base::Result<NpyPrefix> parse_npy(std::string_view beginning);

}  // namespace trireme::data
