#pragma once

#include <memory>
#include <vector>

#include "api/dataset_ops.h"

namespace trireme::api {

// Some of the rows, as they are.
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

Record exported(const data::Batch& batch);
base::Result<std::shared_ptr<const data::Schema>> taken_schema(Record record);
// The batch and these columns; those that it has already are replaced where they are.
Record with_columns(const data::Batch& batch, Record columns);
// One batch of the rows of all, which have the same columns; at least one of them.
base::Result<data::Batch> joined(const std::vector<data::Batch>& batches);
base::Result<data::Batch> first_rows(const data::Batch& batch, std::int64_t rows);

}  // namespace trireme::api
