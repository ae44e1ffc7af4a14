#pragma once

#include <cstdint>
#include <exception>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data.h"
#include "trireme/export.h"
#include "trireme/value.h"

// For programs and libraries that store data: the target of a dataset's rows. trireme::data has the targets for files.

namespace trireme {

struct DataColumn {
  std::string name;
  std::string type;  // "int64", "list<float>"
};

// The rows of one call of DataSink::write(), which are read while they are requested.
class TRIREME_API DataBlocks {
 public:
  virtual ~DataBlocks() = default;
  // Nothing after the last row. Throws if reading fails.
  virtual std::optional<Batch> next() = 0;
};

struct WriteResult {
  std::int64_t num_rows = 0;
  std::int64_t size_bytes = 0;
  std::vector<Value> write_returns;  // the results of all calls of write()
};

// A target of rows. Methods throw a std::exception if the rows cannot be stored.
class TRIREME_API DataSink {
 public:
  virtual ~DataSink() = default;

  // For messages.
  virtual std::string name() const = 0;
  // Called once, before write().
  virtual void on_write_start(const std::vector<DataColumn>& columns);
  // Writes some rows. task_idx: the number of the call. Rows are passed in the order of the dataset; those that are not
  // requested are skipped.
  virtual Value write(DataBlocks& blocks, std::int64_t task_idx) = 0;
  // Called once, after the last write().
  virtual void on_write_complete(const WriteResult& result);
  // Called if anything fails after on_write_start(). The error is thrown afterwards.
  virtual void on_write_failed(const std::exception& error);
  // false: all rows are passed to one call of write().
  virtual bool supports_distributed_writes() const { return true; }
  // The rows of each call of write(), except the last; nullopt: about 128 MiB.
  virtual std::optional<std::int64_t> min_rows_per_write() const { return {}; }
};

namespace data {

// Passes all rows to the sink, in order, on this thread. Without rows, write() is called once.
TRIREME_API void write_datasink(const Dataset& dataset, DataSink& sink);

}  // namespace data
}  // namespace trireme
