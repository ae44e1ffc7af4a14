#pragma once

#include <cstdint>
#include <span>
#include <string>

#include "base/result.h"
#include "data/arrow_c.h"

namespace trireme::data {

// A part of a dataset that is read as a whole or not at all: a row group, a file, a slice of a table.
struct Fragment {
  std::string name;        // for people: "part-0.parquet, row group 3"
  std::int64_t rows = 0;   // exactly
  std::int64_t bytes = 0;  // about what they take in memory
};

struct DatasetSize {
  std::int64_t rows = 0;
  std::int64_t bytes = 0;
  std::int64_t fragments = 0;  // with rows

  double row_bytes() const { return static_cast<double>(bytes) / static_cast<double>(rows > 0 ? rows : 1); }
};
DatasetSize size_of(std::span<const Fragment> fragments);

struct Opened {
  ArrowArrayStream stream{};  // owned by whoever gets it
  // The fragment's row that the stream begins with: the asked one, or one before it where that is cheaper.
  std::int64_t first_row = 0;
};

// Where the rows come from. Fragments are the same whenever they are read.
class Source {
 public:
  virtual ~Source() = default;
  // Called on any thread, also at the same time for different fragments. Where PipelineOptions::read_retries allows it,
  // what fails here or with EIO in the stream is tried again.
  virtual base::Result<Opened> open(std::size_t fragment, std::int64_t row) = 0;
  // For whoever takes no row from `end` on, which is before the fragment's end: none of those has to be made.
  virtual base::Result<Opened> open_part(std::size_t fragment, std::int64_t row, std::int64_t) {
    return open(fragment, row);
  }
};

}  // namespace trireme::data
