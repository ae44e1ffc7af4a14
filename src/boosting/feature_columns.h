#pragma once

#include <array>
#include <cstdint>
#include <list>
#include <string>
#include <vector>

#include "boosting/column_reader.h"
#include "boosting/row_columns.h"

namespace trireme::boosting {

// The features of a batch as columns of integers and floats that a library reads where Arrow has them. Only columns of
// other types are converted: categories, booleans, decimals and floats of 16 bits.
class FeatureColumns {
 public:
  struct Column {
    const char* format;                  // Arrow's
    std::size_t width;                   // bytes of a value
    std::array<const void*, 2> buffers;  // the validity (nullptr: no nulls) and the values, from the first row on
  };

  FeatureColumns(const Batch& batch, const RowColumns& columns);
  FeatureColumns(const FeatureColumns&) = delete;
  FeatureColumns& operator=(const FeatureColumns&) = delete;

  const ExportedBatch& batch() const { return batch_; }
  std::int64_t rows() const { return batch_.rows(); }
  const std::vector<Column>& columns() const { return columns_; }
  std::int64_t bytes() const;
  // The rows one after another; missing values are NaN.
  std::vector<double> matrix() const;

 private:
  Column in_place(const ColumnView& view);
  Column converted(const ColumnView& view);
  Column codes(const std::string& name, const List& categories);

  ExportedBatch batch_;
  std::vector<Column> columns_;
  // Of converted columns.
  std::list<std::vector<float>> floats_;
  std::list<std::vector<double>> doubles_;
  std::list<std::vector<std::uint8_t>> bits_;
};

}  // namespace trireme::boosting
