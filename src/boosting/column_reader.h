#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "data/arrow_c.h"
#include "trireme/data.h"

namespace trireme::boosting {

// The rows of a batch as Arrow arrays, released at the end of the scope.
class ExportedBatch {
 public:
  explicit ExportedBatch(const Batch& batch);
  ~ExportedBatch();
  ExportedBatch(const ExportedBatch&) = delete;
  ExportedBatch& operator=(const ExportedBatch&) = delete;

  std::int64_t rows() const { return array_.length; }
  // Writes a column of numbers; nulls are NaN.
  void read_numbers(const std::string& column, float* out) const;
  // Writes columns of numbers row by row, each with its place in the rows. `width`: the distance between rows.
  using Places = std::vector<std::pair<std::string, std::size_t>>;
  void read_matrix(const Places& columns, double* out, std::size_t width) const;
  // Calls the function for every row of a column of strings or integers: with the value, or monostate for null.
  using Key = std::variant<std::monostate, std::int64_t, std::string_view>;
  void read_keys(const std::string& column, const std::function<void(std::int64_t row, const Key&)>& function) const;

 private:
  std::int64_t index_of(const std::string& column) const;

  ArrowArray array_{};
  ArrowSchema schema_{};
};

}  // namespace trireme::boosting
