#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "data/array_buffers.h"
#include "data/arrow_c.h"
#include "data/batch.h"
#include "data/schema.h"

namespace trireme::data {

// Gathers the rows of the runs (`rows` in total), in order. A run's `chunk` is the index of its source; its `row`
// counts from the source's own offset. The sources are arrays of that type, checked by Chunk::take, and contain all
// rows of the runs.
base::Result<Array> gather_column(const Type& type, std::span<const ArrowArray* const> sources,
                                  std::span<const Run> runs, std::int64_t rows);

}  // namespace trireme::data
