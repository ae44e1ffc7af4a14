#pragma once

#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "trireme/data.h"
#include "trireme/value.h"

namespace trireme::plan {

// The implementation of the handle in data.h.
struct BatchData {
  data::Batch batch;
};

Batch public_batch(data::Batch batch);

// Numbers as numbers, dates and times as the stored numbers, lists of a fixed size as tensors. The error names the
// column with a type that has no plain value.
base::Result<std::vector<Dict>> rows_of(const data::Batch& batch);

}  // namespace trireme::plan
