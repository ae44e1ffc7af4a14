#pragma once

#include <cstdint>
#include <string_view>

namespace trireme::boosting {

// Decimal numbers of an Arrow column, of 32 to 256 bits.
class DecimalReader {
 public:
  static bool reads(std::string_view format) { return format.starts_with("d:"); }
  // `format`: "d:10,2" or "d:10,2,256".
  explicit DecimalReader(std::string_view format);

  // The nearest float, as Python's float(). `values`: the first value of the column.
  double read(const void* values, std::int64_t at) const;

 private:
  int scale_ = 0;
  std::size_t bytes_ = 16;
};

}  // namespace trireme::boosting
