#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/export.h"
#include "trireme/value.h"

struct ArrowArrayStream;  // the Arrow C stream interface

// For libraries that read data: the source of a dataset's rows. trireme::data provides the sources for files.

namespace trireme {

class Dataset;

// A part of a dataset that is read as a unit: a row group or a file.
struct DataFragment {
  std::string name;                       // for messages: "part-0.parquet, row group 3"
  std::optional<std::int64_t> rows = {};  // exact; nullopt if only known after reading
  std::int64_t bytes = 0;                 // approximate size in memory
};

// A condition on one column that every selected row meets.
struct DataCondition {
  enum class Kind { kEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kOneOf };

  std::string column;
  Kind kind = Kind::kEqual;
  List values = {};  // ints, floats or strings; exactly one, except for kOneOf
};

// Provides rows. Methods throw a std::exception that describes the problem with the data.
class TRIREME_API DataSource {
 public:
  virtual ~DataSource() = default;

  // For messages: "read_parquet(train/)".
  virtual std::string name() const = 0;
  // Must return the same in every process. Called once.
  virtual std::vector<DataFragment> list() = 0;
  // Opens a stream of the fragment's rows, in the same order every time. Returns the row at which the stream starts:
  // `row`, or an earlier one if that is cheaper. Called from several threads concurrently. A transient error (a store
  // that does not respond) is an EIO of the stream, and is retried.
  virtual std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) = 0;
  // Whether reads can fail temporarily.
  virtual bool remote() const { return false; }
  // Upper limit of the memory that decoding an open fragment takes, in addition to its rows; known after list(). 0:
  // unknown.
  virtual std::int64_t decoding_bytes() const { return 0; }
  // The same source with only these columns, in this order, if that saves reading. nullptr: not supported; the caller
  // drops the other columns.
  virtual std::shared_ptr<DataSource> with_columns(const std::vector<std::string>& columns);
  // The same source without the fragments in which no row can meet all conditions, if that is known without reading
  // them. nullptr: not supported. Every row is still checked after reading.
  virtual std::shared_ptr<DataSource> with_conditions(const std::vector<DataCondition>& conditions);
  // Whether rows take longer to decode than to find, as images do. Workers then divide the rows of a fragment.
  virtual bool costly() const { return false; }
};

namespace data {

TRIREME_API Dataset from_source(std::shared_ptr<DataSource> source);

}  // namespace data
}  // namespace trireme
