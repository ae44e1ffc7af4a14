#pragma once

#include <cstdint>
#include <optional>

#include "trireme/config.h"

// The options of iter_batches(), as one table like those of config.h: the struct, Python's keyword arguments and the
// errors for wrong values come from it.

namespace trireme {

// clang-format off
#define TRIREME_ITER_BATCHES_OPTIONS(FIELD, PYTHON_FIELD)                                                              \
  FIELD(std::int64_t, batch_size, 256, "Rows in a batch of one rank.")                                                 \
  FIELD(std::optional<std::int64_t>, global_batch_size, {},                                                            \
        "Rows in a batch of all ranks together, for any number of ranks; replaces batch_size.")                        \
  FIELD(bool, drop_last, false, "Leave out the last batch of an epoch if it is smaller.")                              \
  FIELD(bool, pad_last, false, "Fill the last batch of an epoch by repeating its rows if it is smaller.")              \
  FIELD(int, prefetch_batches, 1, "Number of batches that are prepared ahead.")                                        \
  FIELD(std::optional<std::int64_t>, local_shuffle_buffer_size, {},                                                    \
        "Shuffle rows once more, each among this many consecutive ones. None: disabled.")                              \
  FIELD(std::optional<std::int64_t>, local_shuffle_seed, {}, "Seed of that shuffle. None: the dataset's seed.")
// clang-format on

TRIREME_CONFIG_STRUCT(IterBatchesOptions, TRIREME_ITER_BATCHES_OPTIONS)

}  // namespace trireme
