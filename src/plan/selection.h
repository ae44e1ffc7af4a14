#pragma once

#include <memory>
#include <vector>

#include "plan/ops.h"

namespace trireme::plan {

// Selects rows of a batch, unchanged.
class Selection : public Op {
 public:
  bool keeps_rows() const override { return false; }
  base::Result<std::shared_ptr<const data::Schema>> learn(const data::Batch& example) override {
    return example.schema();
  }
  base::Result<Record> apply(const data::Batch& batch, Where where) override;

 private:
  virtual base::Result<std::vector<bool>> choose(const data::Batch& batch, Where where) const = 0;
};

// The batch with these columns; columns of the same name are replaced in place.
Record with_columns(const data::Batch& batch, Record columns);
// Concatenates batches with the same columns; at least one.
base::Result<data::Batch> joined(const std::vector<data::Batch>& batches);
base::Result<data::Batch> first_rows(const data::Batch& batch, std::int64_t rows);

}  // namespace trireme::plan
