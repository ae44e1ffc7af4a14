#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "data/arrow_c.h"

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

struct Opened {
  ArrowArrayStream stream{};  // owned by the caller
  // The row of the fragment at which the stream starts: the requested one, or an earlier one if that is cheaper.
  std::int64_t first_row = 0;
};

// The source of rows. Fragments are the same at every read.
class Source {
 public:
  virtual ~Source() = default;
  // Called on any thread, also concurrently for different fragments. Failures here and EIO in the stream are retried if
  // PipelineOptions::read_retries allows it.
  virtual base::Result<Opened> open(std::size_t fragment, std::int64_t row) = 0;
  // For callers that need no rows from `end` on, which is before the fragment's end: those need not be computed.
  virtual base::Result<Opened> open_part(std::size_t fragment, std::int64_t row, std::int64_t) {
    return open(fragment, row);
  }
  // Grows when the columns get wider types: a pass whose streams fail then continues with new ones.
  virtual std::int64_t revision() { return 0; }
};

}  // namespace trireme::data
