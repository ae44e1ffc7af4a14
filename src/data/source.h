#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <string>

#include "base/result.h"
#include "data/arrow_owned.h"

namespace trireme::data {

// A part of a dataset that is read as a unit: a row group, a file, a slice of a table.
struct Fragment {
  std::string name;        // for messages: "part-0.parquet, row group 3"
  std::int64_t rows = 0;   // exact
  std::int64_t bytes = 0;  // estimated memory of the rows
};

struct DatasetSize {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::int64_t fragments = 0;  // number of fragments with rows

  double row_bytes() const { return static_cast<double>(bytes) / static_cast<double>(rows > 0 ? rows : 1); }
};
DatasetSize size_of(std::span<const Fragment> fragments);

inline constexpr std::int64_t kNoEnd = std::numeric_limits<std::int64_t>::max();

struct Opened {
  OwnedStream stream;
  // The row of the fragment at which the stream starts: the requested one, or an earlier one if that is cheaper.
  std::int64_t first_row = 0;
};

// The source of rows. Fragments are the same at every read.
class Source {
 public:
  virtual ~Source() = default;
  // Called on any thread, also concurrently for different fragments. Failures here and EIO in the stream are retried if
  // PipelineOptions::read_retries allows it.
  // Rows from `end` on are not needed, and need not be computed; kNoEnd: all are.
  virtual base::Result<Opened> open(std::size_t fragment, std::int64_t row, std::int64_t end) = 0;
  // Grows when the columns get wider types: a pass whose streams fail then continues with new ones.
  virtual std::int64_t revision() { return 0; }
};

}  // namespace trireme::data
