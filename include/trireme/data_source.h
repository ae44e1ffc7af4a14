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

// For libraries that read data: what a dataset is made of. trireme::arrow has the sources for files.

namespace trireme {

class Dataset;

// A part of a dataset that is read as a whole: a row group, a file.
struct DataFragment {
  std::string name;                       // for people: "part-0.parquet, row group 3"
  std::optional<std::int64_t> rows = {};  // exactly; nothing where only reading tells
  std::int64_t bytes = 0;                 // about what they take in memory
};

// What every row that is wanted has in one column.
struct DataCondition {
  enum class Kind { kEqual, kLess, kLessEqual, kGreater, kGreaterEqual, kOneOf };

  std::string column;
  Kind kind = Kind::kEqual;
  List values = {};  // whole and real numbers, texts; one, but for kOneOf
};

// Where rows come from. Methods throw a std::exception that says what is wrong with the data.
class TRIREME_API DataSource {
 public:
  virtual ~DataSource() = default;

  // "read_parquet(train/)": for messages.
  virtual std::string name() const = 0;
  // The same whenever it is asked, in every process. Asked once.
  virtual std::vector<DataFragment> list() = 0;
  // A stream of the fragment's rows, the same every time. Returns the row that it begins with: `row`, or one before it
  // where that is cheaper. Called on any thread, also at the same time. What may pass (a store that does not answer)
  // is an EIO of the stream, and tried again.
  virtual std::int64_t open(std::size_t fragment, std::int64_t row, ArrowArrayStream* stream) = 0;
  // Whether reading may fail for a while and work again.
  virtual bool remote() const { return false; }
  // What decoding a fragment takes at most while it is open, beside its rows; known after list(). 0: nobody knows.
  virtual std::int64_t decoding_bytes() const { return 0; }
  // The same with these columns only, in this order, where that saves reading; nullptr: what is read is dropped.
  virtual std::shared_ptr<DataSource> with_columns(const std::vector<std::string>& columns);
  // The same without fragments in which no row can meet all of these, where that is known without reading them;
  // nullptr: it is not. Every row is looked at afterwards all the same.
  virtual std::shared_ptr<DataSource> with_conditions(const std::vector<DataCondition>& conditions);
  // Whether rows take longer to make than to find, as images do: then workers divide those of a fragment among them.
  virtual bool costly() const { return false; }
};

namespace data {

TRIREME_API Dataset from_source(std::shared_ptr<DataSource> source);

}  // namespace data
}  // namespace trireme
