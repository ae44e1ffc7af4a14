#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "data/array_buffers.h"
#include "data/arrow_c.h"
#include "data/batch.h"
#include "data/schema.h"

namespace trireme::data {

// The rows of the runs (`rows` in all), one after the other. A run's `chunk` says which of the sources it is from, its
// `row` counts from the source's own offset. The sources are arrays of that type that Chunk::take has checked, and have
// the rows.
base::Result<Array> gather_column(const Type& type, std::span<const ArrowArray* const> sources,
                                  std::span<const Run> runs, std::int64_t rows);

}  // namespace trireme::data
