#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <iterator>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "trireme/export.h"
#include "trireme/expression.h"
#include "trireme/iter_batches_options.h"
#include "trireme/tensor.h"
#include "trireme/value.h"

struct ArrowArray;        // the Arrow C data interface
struct ArrowSchema;       //
struct ArrowArrayStream;  // the Arrow C stream interface

// Datasets: tables that are streamed while they are used. Failures and changes of the number of workers do not change
// the order of the rows. This header has datasets in memory; trireme::data (arrow/data.h) reads files.
//
//   auto points = trireme::data::range(1000).map([](const Dict& row) -> Dict {
//     return {{"x", row["id"].as_double() / 1000}};
//   });
//   DataParallelTrainer(train, {.datasets = {{"train", points}}}).fit();
//
// Invalid data throws a std::runtime_error that names the file, row and column.

namespace trireme {

namespace api {
struct BatchStream;
struct ShardData;
}  // namespace api

namespace plan {
class Plan;
struct BatchData;
}  // namespace plan

// Rows of one or more columns, in memory. A handle: copies share the memory.
class TRIREME_API Batch {
 public:
  explicit Batch(std::shared_ptr<const plan::BatchData> data) : data_(std::move(data)) {}

  std::int64_t rows() const;
  std::vector<std::string> columns() const;
  // Numbers of shape [rows], or [rows, ...] if every row has a tensor or a list of the same size. Not copied, except
  // for booleans. Throws ValueError if the column does not exist, is not numeric or has nulls.
  Tensor operator[](std::string_view column) const;
  // Like operator[], but returns nothing instead of throwing.
  std::optional<Tensor> find_tensor(std::string_view column) const;
  // A column of strings or bytes. The views are valid while the batch lives. Throws ValueError for other columns.
  std::vector<std::string_view> strings(std::string_view column) const;
  std::vector<Dict> to_rows() const;
  // A record batch that shares the memory. The caller releases it.
  void export_to(ArrowArray* array, ArrowSchema* schema) const;

 private:
  std::shared_ptr<const plan::BatchData> data_;  // shared by the copies of the handle
};

// The batches of one epoch: for (auto& batch : shard.iter_batches({.batch_size = 32})) ...
class TRIREME_API Batches {
 public:
  explicit Batches(std::shared_ptr<api::BatchStream> stream) : stream_(std::move(stream)) {}

  class TRIREME_API Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Batch;
    using pointer = Batch*;
    using reference = Batch&;

    explicit Iterator(std::shared_ptr<api::BatchStream> stream) : stream_(std::move(stream)) {}
    Batch& operator*() const;
    Batch* operator->() const { return &**this; }
    Iterator& operator++();
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t) const;

   private:
    std::shared_ptr<api::BatchStream> stream_;  // shared with the range: the epoch is abandoned when both are destroyed
  };

  // Starts the epoch. In a training function it throws Interrupted if the function must return.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<api::BatchStream> stream_;  // shared with iterators
};

// Iterates row by row, for small data and for inspection.
class TRIREME_API Rows {
 public:
  explicit Rows(Batches batches) : batches_(std::move(batches)) {}

  class TRIREME_API Iterator {
   public:
    using iterator_category = std::input_iterator_tag;
    using difference_type = std::ptrdiff_t;
    using value_type = Dict;
    using pointer = Dict*;
    using reference = Dict&;

    explicit Iterator(Batches::Iterator batch) : batch_(std::move(batch)) { load(); }
    Dict& operator*() { return rows_[at_]; }
    Dict* operator->() { return &rows_[at_]; }
    Iterator& operator++() {
      if (++at_ < rows_.size()) return *this;
      ++batch_;
      load();
      return *this;
    }
    void operator++(int) { ++*this; }
    bool operator==(std::default_sentinel_t end) const { return batch_ == end; }

   private:
    void load() {
      at_ = 0;
      if (batch_ != std::default_sentinel) rows_ = batch_->to_rows();
    }

    Batches::Iterator batch_;  // one row, or a few at the end: the position is after them
    std::vector<Dict> rows_;
    std::size_t at_ = 0;
  };

  Iterator begin() { return Iterator(batches_.begin()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Batches batches_;
};

struct DataStats {
  std::int64_t rows = 0;  // delivered
  std::int64_t bytes = 0;
  std::int64_t batches = 0;
  double wait_s = 0;  // total time spent waiting for batches
  std::int64_t peak_bytes = 0;
  std::int64_t retries = 0;
};

// A rank's part of a dataset, epoch after epoch, as returned by get_dataset_shard(). Its position is stored with every
// reported checkpoint, and a restarted worker resumes from it with any number of workers. A handle, for one thread.
// Only one iteration runs at a time: the next one starts the next epoch.
class TRIREME_API DataShard {
 public:
  explicit DataShard(std::shared_ptr<api::ShardData> data) : data_(std::move(data)) {}

  Batches iter_batches(const IterBatchesOptions& options = {}) const;
  Rows iter_rows() const;

  std::int64_t epoch() const;  // the current epoch, or the next one if none is running
  std::int64_t rows() const;   // of the complete dataset
  // The position: everything up to and including the last delivered batch is done. Equal on all ranks.
  Dict state() const;
  // The next iteration resumes from this position instead of the checkpoint's.
  void load_state(const Dict& state) const;
  DataStats stats() const;

 private:
  std::shared_ptr<api::ShardData> data_;  // shared by the copies of the handle
};

// For training functions: the rank's part of the trainer's dataset of that name, or all of it if DataConfig does not
// split the dataset. Every call returns the same shard.
TRIREME_API DataShard get_dataset_shard(const std::string& name = "train");

struct MapBatchesOptions {
  std::int64_t batch_size = 1024;  // at most: a batch does not cross the end of a fragment
  // Set this if the function returns a different number of rows, or rows in a different order. The rows are then
  // counted by running the function once.
  bool changes_row_count = false;
};

struct ShuffleOptions {
  std::optional<std::int64_t> seed = {};
  // Number of rows that are shuffled together. More rows mix better and take more memory. Default: by the size of a
  // row.
  std::optional<std::int64_t> window_rows = {};
};

struct TrainTestSplitOptions {
  bool shuffle = false;
  std::optional<std::int64_t> seed = {};
};

// A lazy table: how to read it, and what to do with its rows. An immutable handle: operations return new datasets, and
// nothing is read until rows are requested. Functions are called concurrently on several threads. Workers run main()
// again and create their own functions there.
class TRIREME_API Dataset {
 public:
  explicit Dataset(std::shared_ptr<plan::Plan> plan) : plan_(std::move(plan)) {}

  // Maps one row of plain values and tensors to another.
  Dataset map(std::function<Dict(const Dict& row)> function) const;
  // Maps a batch at a time, which is much faster: the result has a Tensor or a List for each column.
  Dataset map_batches(std::function<Dict(const Batch& batch)> function, const MapBatchesOptions& options = {}) const;
  Dataset flat_map(std::function<std::vector<Dict>(const Dict& row)> function) const;
  Dataset filter(std::function<bool(const Dict& row)> keeps) const;
  // The rows for which an expression is true: "x > 3 and y == 'a'", or col("x") > 3. Missing columns and columns of the
  // wrong type are reported before rows are read.
  Dataset filter(const data::Expression& expression) const;
  Dataset filter(const char* expression) const { return filter(data::Expression::parse(expression)); }
  Dataset filter(const std::string& expression) const { return filter(data::Expression::parse(expression)); }

  // Adds or replaces a column. The function returns a Tensor or a List with a value for each row of the batch, or one
  // value for all rows.
  Dataset add_column(const std::string& column, std::function<Value(const Batch& batch)> function) const;
  // Adds or replaces a column computed by an expression: "a * b".
  Dataset with_column(const std::string& column, const data::Expression& expression) const;
  Dataset with_column(const std::string& column, const char* expression) const {
    return with_column(column, data::Expression::parse(expression));
  }
  Dataset with_column(const std::string& column, const std::string& expression) const {
    return with_column(column, data::Expression::parse(expression));
  }
  Dataset select_columns(std::vector<std::string> columns) const;
  Dataset drop_columns(std::vector<std::string> columns) const;
  Dataset rename_columns(std::map<std::string, std::string> names) const;

  Dataset limit(std::int64_t rows) const;
  Dataset union_with(const Dataset& other) const;
  // The columns of both datasets, row by row. Both need the same number of rows. Duplicate names get a suffix: _1, _2,
  // ...
  Dataset zip(const Dataset& other) const;
  // A different order in every epoch: first the fragments are shuffled, then the rows within windows.
  Dataset random_shuffle(const ShuffleOptions& options = {}) const;
  // Shuffles only the fragments, which costs nothing.
  Dataset randomize_block_order(std::optional<std::int64_t> seed = {}) const;
  // Keeps each row with this probability, always the same rows.
  Dataset random_sample(double fraction, std::int64_t seed = 0) const;
  // The same rows in this number of fragments of about equal size.
  Dataset repartition(std::int64_t fragments) const;

  std::vector<Dataset> split(std::int64_t parts) const;
  std::vector<Dataset> split_at_indices(const std::vector<std::int64_t>& indices) const;
  // `test_size`: a fraction between 0 and 1, or a number of rows.
  std::pair<Dataset, Dataset> train_test_split(double test_size, const TrainTestSplitOptions& options = {}) const;
  // Shards without a trainer: one for each of `parts` ranks.
  std::vector<DataShard> streaming_split(int parts) const;
  // Reads the dataset into memory now.
  Dataset materialize() const;

  std::int64_t count() const;
  std::vector<std::string> columns() const;
  // One column per line: "id: int64".
  std::string schema() const;
  std::size_t num_fragments() const;
  std::vector<Dict> take(std::int64_t rows = 20) const;
  std::vector<Dict> take_all() const;
  // The first rows as one batch. Throws ValueError if the dataset is empty.
  Batch take_batch(std::int64_t batch_size = 20) const;
  // The distinct values of a column, in order of first appearance.
  List unique(const std::string& column, bool ignore_nulls = false) const;
  // Aggregates of a column, which is read once, a batch at a time. Null if there are no values, or if there are nulls
  // that are not ignored.
  Value sum(const std::string& on, bool ignore_nulls = true) const;
  Value min(const std::string& on, bool ignore_nulls = true) const;
  Value max(const std::string& on, bool ignore_nulls = true) const;
  Value mean(const std::string& on, bool ignore_nulls = true) const;
  // The standard deviation; ddof = 1: of a sample. NaN if there are no more than ddof values.
  Value std(const std::string& on, int ddof = 1, bool ignore_nulls = true) const;
  // A summary: the operations, fragments, rows and shuffle.
  std::string stats() const;
  void show(std::int64_t rows = 20) const;
  Batches iter_batches(const IterBatchesOptions& options = {}) const;
  Rows iter_rows() const;
  // All rows. The caller releases the stream.
  void export_to(ArrowArrayStream* stream) const;

  const std::shared_ptr<plan::Plan>& plan() const { return plan_; }

 private:
  std::shared_ptr<plan::Plan> plan_;  // shared with derived datasets; caches row counts
};

namespace data {

using trireme::Dataset;

// A column "id" with 0, 1, ..., rows - 1.
TRIREME_API Dataset range(std::int64_t rows);
// A column "data" with a tensor in each row, filled with the row's index.
TRIREME_API Dataset range_tensor(std::int64_t rows, const std::vector<std::int64_t>& shape = {1});
// Rows with the same columns.
TRIREME_API Dataset from_items(const std::vector<Dict>& rows);
// Columns of the same length: tensors of shape [rows, ...], or lists.
TRIREME_API Dataset from_columns(const Dict& columns);
// Reads the stream to its end and releases it.
TRIREME_API Dataset from_stream(ArrowArrayStream* stream);

}  // namespace data
}  // namespace trireme
