#pragma once

#include <arrow/buffer.h>
#include <arrow/result.h>

#include <memory>

#include "data/npy.h"

namespace trireme::arrow {

// The values of a .npy file in the order and with the bytes that this machine likes; only moved where they are not.
::arrow::Result<std::shared_ptr<::arrow::Buffer>> in_row_order(const data::NpyHeader& header,
                                                               std::shared_ptr<::arrow::Buffer> values);

}  // namespace trireme::arrow
