#pragma once

#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "trireme/data.h"
#include "trireme/value.h"

namespace trireme::api {

// What is behind the handle of data.h.
struct BatchData {
  data::Batch batch;
};

Batch public_batch(data::Batch batch);

// Numbers as such, dates and times as the numbers that they are stored as, lists of a fixed size as tensors. The error
// names the column with a type that plain values do not have.
base::Result<std::vector<Dict>> rows_of(const data::Batch& batch);

}  // namespace trireme::api
