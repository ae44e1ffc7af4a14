#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <variant>

#include "data/arrow_c.h"
#include "trireme/data.h"

namespace trireme::boosting {

// A column of a record batch, whose own offset applies to it too.
struct ColumnView {
  const char* name;
  const char* format;          // Arrow's
  const void* const* buffers;  // Arrow's
  std::int64_t first;
  std::int64_t rows;
  const std::uint8_t* validity;  // nullptr: no nulls

  bool is_null(std::int64_t row) const {
    return validity != nullptr && ((validity[(first + row) / 8] >> ((first + row) % 8)) & 1) == 0;
  }
};

// The rows of a batch as Arrow arrays, released at the end of the scope.
class ExportedBatch {
 public:
  explicit ExportedBatch(const Batch& batch);
  ~ExportedBatch();
  ExportedBatch(const ExportedBatch&) = delete;
  ExportedBatch& operator=(const ExportedBatch&) = delete;

  std::int64_t rows() const { return array_.length; }
  ColumnView column(const std::string& name) const;
  // Calls the function for every row of a column of strings or integers: with the value, or monostate for null.
  using Key = std::variant<std::monostate, std::int64_t, std::string_view>;
  void read_keys(const std::string& column, const std::function<void(std::int64_t row, const Key&)>& function) const;

 private:
  ArrowArray array_{};
  ArrowSchema schema_{};
};

// The number of bytes of a value of an integer or a float of 32 or 64 bits; 0: the column has another type.
std::size_t width_of(const ColumnView& column);

// Writes a column of numbers; nulls are NaN. `stride`: the distance between two values.
void read_numbers(const ColumnView& column, float* out, std::size_t stride = 1);
void read_numbers(const ColumnView& column, double* out, std::size_t stride = 1);

}  // namespace trireme::boosting
