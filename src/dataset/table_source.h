#pragma once

#include <arrow/table.h>

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data_source.h"

namespace trireme::dataset {

using TablePointer = std::shared_ptr<::arrow::Table>;

// A table that is computed on first use, in slices.
class TableSource : public DataSource {
 public:
  explicit TableSource(std::string name) : name_(std::move(name)) {}

  std::string name() const override { return name_; }
  std::vector<DataFragment> list() override;
  std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) override;

 private:
  virtual TablePointer compute() = 0;
  // The number of slices, of about equal size; nullopt: slices of 65536 rows.
  virtual std::optional<std::int64_t> slices(const ::arrow::Table&, std::int64_t) const { return {}; }
  virtual std::int64_t row_bytes(const ::arrow::Table& table) const { return 8 * table.num_columns(); }

  std::string name_;
  TablePointer table_;                // shared with streams
  std::vector<std::int64_t> starts_;  // of the slices, and the end
};

}  // namespace trireme::dataset
