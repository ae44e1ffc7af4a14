#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "trireme/export.h"
#include "trireme/tensor.h"

namespace trireme::formats {

enum class NpyValues : std::uint8_t {
  kNumbers,  // and booleans
  kAny,      // also text, dates and others that only NumPy reads; no objects
};

// The header of a .npy file.
struct NpyHeader {
  std::string descr;            // NumPy's name of the type, such as "<f4"
  std::int64_t item_bytes = 0;  // of one value
  DType dtype = DType::kF32;    // if it is one
  bool swapped = false;         // big-endian
  bool fortran_order = false;
  std::vector<std::int64_t> shape;
  std::int64_t begin = 0;  // offset of the values

  // Total bytes of the values; fits into 64 bits.
  TRIREME_API std::int64_t value_bytes() const;
};

// Parses the first bytes of a file, versions 1 to 3. If they are too few, returns the number of bytes needed.
struct NpyPrefix {
  std::optional<NpyHeader> header;
  std::int64_t needed = 0;
};
TRIREME_API base::Result<NpyPrefix> parse_npy(std::string_view beginning, NpyValues values = NpyValues::kNumbers);

// The numbers of the header's shape, in row-major order and native byte order: a view of `values`, which `owner` keeps
// alive, if they are stored in that way.
TRIREME_API Tensor npy_tensor(const NpyHeader& header, std::string_view values, std::shared_ptr<const void> owner);

}  // namespace trireme::formats
