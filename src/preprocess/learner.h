#pragma once

#include "base/result.h"
#include "preprocess/table.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// Statistics in the making: one pass over the batches, with no more memory than the result takes. Used by one thread at
// a time. Must not outlive its preprocessor.
class Learner {
 public:
  virtual ~Learner() = default;

  virtual base::Result<void> add(const Table& table) = 0;
  // The statistics, as in the JSON. Called once, after the last batch.
  virtual base::Result<Dict> done() = 0;
};

}  // namespace trireme::preprocess
