#pragma once

#include <memory>

#include "api/preprocessors/preprocessor_impl.h"
#include "plan/ops.h"

namespace trireme::api::preprocessing {

// Applies a preprocessor to batches while they are read. `back`: inverse_transform().
std::unique_ptr<Op> transform_op(std::shared_ptr<const PreprocessorImpl> impl, bool back);

}  // namespace trireme::api::preprocessing
