#pragma once

#include <cstddef>
#include <functional>

#include "base/result.h"

namespace trireme::storage {

// work(0) ... work(count - 1), up to `threads` at once. After an error nothing new begins, and the one of the lowest
// number is returned.
base::Result<void> in_parallel(std::size_t count, std::size_t threads,
                               const std::function<base::Result<void>(std::size_t)>& work);

}  // namespace trireme::storage
