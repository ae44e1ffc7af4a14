#pragma once

#include <arrow/buffer.h>
#include <arrow/result.h>

#include <memory>

#include "formats/npy.h"

namespace trireme::dataset {

// The values of a .npy file in row-major order and native byte order. Rearranged only if needed.
::arrow::Result<std::shared_ptr<::arrow::Buffer>> in_row_order(const formats::NpyHeader& header,
                                                               std::shared_ptr<::arrow::Buffer> values);

}  // namespace trireme::dataset
