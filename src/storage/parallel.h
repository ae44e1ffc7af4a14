#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace trireme::storage {

// Calls work(0) ... work(count - 1) on up to `threads` threads. After an error, no new calls start. Returns the error
// with the lowest index.
base::Result<void> in_parallel(std::size_t count, std::size_t threads,
                               const std::function<base::Result<void>(std::size_t)>& work);

}  // namespace trireme::storage
