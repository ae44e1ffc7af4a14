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
#include "trireme/tensor.h"
#include "trireme/value.h"

struct ArrowArray;        // the Arrow C data interface
struct ArrowSchema;       //
struct ArrowArrayStream;  // the Arrow C stream interface

// Datasets: tables that are read while they are used, in an order that no failure and no change of size can change.
// What is in memory is made here; files are read by trireme::arrow (arrow/data.h).
//
//   auto points = trireme::data::range(1000).map([](const Dict& row) -> Dict {
//     return {{"x", row["id"].as_double() / 1000}};
//   });
//   DataParallelTrainer(train, {.datasets = {{"train", points}}}).fit();
//
// Where data is not as it must be, these throw std::runtime_error that names file, row and column.

namespace trireme {

namespace api {
class Plan;
struct BatchData;
struct BatchStream;
struct ShardData;
}  // namespace api

// Rows of some columns, in memory. A handle: copies share the memory.
class TRIREME_API Batch {
 public:
  explicit Batch(std::shared_ptr<const api::BatchData> data) : data_(std::move(data)) {}

  std::int64_t rows() const;
  std::vector<std::string> columns() const;
  // Numbers of shape [rows], or [rows, ...] where every row has a list of the same size or a tensor. Not copied
  // (booleans are). Throws ValueError for a column that is not there, is no numbers or has nulls.
  Tensor operator[](std::string_view column) const;
  // Nothing where that would throw.
  std::optional<Tensor> find_tensor(std::string_view column) const;
  // The text of a column of strings or bytes, which lives as long as the batch. Throws ValueError as well.
  std::vector<std::string_view> strings(std::string_view column) const;
  std::vector<Dict> to_rows() const;
  // A record batch that shares the memory, to be released by whoever gets it.
  void export_to(ArrowArray* array, ArrowSchema* schema) const;

 private:
  std::shared_ptr<const api::BatchData> data_;  // shared by the copies of the handle
};

struct IterBatchesOptions {
  std::int64_t batch_size = 256;  // of one rank
  // Of all ranks together, whatever their number, in place of batch_size.
  std::optional<std::int64_t> global_batch_size = {};
  // Without the last batch of an epoch where it is smaller, or with that one filled up with rows of its own.
  bool drop_last = false;
  bool pad_last = false;
  int prefetch_batches = 1;
  // Rows that are mixed once more on their way; 0: none.
  std::int64_t local_shuffle_buffer_size = 0;
  std::optional<std::int64_t> local_shuffle_seed = {};
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
    std::shared_ptr<api::BatchStream> stream_;  // shared with the range: when both are gone, the epoch was left
  };

  // Begins the epoch. In a training function it throws Interrupted where that is to be left.
  Iterator begin();
  std::default_sentinel_t end() const { return {}; }

 private:
  std::shared_ptr<api::BatchStream> stream_;  // shared with iterators
};

// Row by row, for small data and for a look at it.
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

    Batches::Iterator batch_;  // of one row, or of a few at the end: the place in the data is after them
    std::vector<Dict> rows_;
    std::size_t at_ = 0;
  };

  Iterator begin() { return Iterator(batches_.begin()); }
  std::default_sentinel_t end() const { return {}; }

 private:
  Batches batches_;
};

struct DataStats {
  std::int64_t rows = 0;  // given out
  std::int64_t bytes = 0;
  std::int64_t batches = 0;
  double wait_s = 0;  // how long a batch was waited for, in sum
  std::int64_t peak_bytes = 0;
  std::int64_t retries = 0;
};

// A rank's part of a dataset, in one epoch after the other: what get_dataset_shard() gives. Its place is stored with
// every checkpoint that is reported, and a restarted worker goes on from it, whatever the number of workers. A handle,
// for one thread; one iteration at a time: the next begins the next epoch.
class TRIREME_API DataShard {
 public:
  explicit DataShard(std::shared_ptr<api::ShardData> data) : data_(std::move(data)) {}

  Batches iter_batches(const IterBatchesOptions& options = {}) const;
  Rows iter_rows() const;

  std::int64_t epoch() const;  // the one that runs, or else the one that is next
  std::int64_t rows() const;   // of the whole dataset
  // Everything before and with the batch that was given out last is done. Equal on all ranks.
  Dict state() const;
  // The next iteration goes on from there, and not from where the checkpoint was.
  void load_state(const Dict& state) const;
  DataStats stats() const;

 private:
  std::shared_ptr<api::ShardData> data_;  // shared by the copies of the handle
};

// Of a training function: its part of the dataset that the trainer was given under that name, or all of it where
// DataConfig says so. The same one at every call.
TRIREME_API DataShard get_dataset_shard(const std::string& name = "train");

struct MapBatchesOptions {
  std::int64_t batch_size = 1024;  // at most: a batch does not go over the end of a fragment
  // As many rows come out as go in, each in its place, unless this is set. Then rows are counted by running it once.
  bool changes_row_count = false;
};

struct ShuffleOptions {
  std::optional<std::int64_t> seed = {};
  // Rows are mixed among so many; more is a better mix and takes more memory. By the size of the rows when not given.
  std::optional<std::int64_t> window_rows = {};
};

struct TrainTestSplitOptions {
  bool shuffle = false;
  std::optional<std::int64_t> seed = {};
};

// A table that is not there yet: how to read it, and what to do with its rows. A handle, never changed: operations give
// new ones, and nothing is read before rows are asked for. Functions are called on several threads at once. Workers go
// through main() again and make their own functions there.
class TRIREME_API Dataset {
 public:
  explicit Dataset(std::shared_ptr<api::Plan> plan) : plan_(std::move(plan)) {}

  // One row of plain values and tensors to another.
  Dataset map(std::function<Dict(const Dict& row)> function) const;
  // Whole columns at once, much faster: the result has a Tensor or a List for each column.
  Dataset map_batches(std::function<Dict(const Batch& batch)> function, const MapBatchesOptions& options = {}) const;
  Dataset flat_map(std::function<std::vector<Dict>(const Dict& row)> function) const;
  Dataset filter(std::function<bool(const Dict& row)> keeps) const;
  // The rows for which an expression is true: "x > 3 and y == 'a'", or col("x") > 3. Columns that are not there, or of
  // the wrong type, are told before rows are read.
  Dataset filter(const data::Expression& expression) const;
  Dataset filter(const char* expression) const { return filter(data::Expression::parse(expression)); }
  Dataset filter(const std::string& expression) const { return filter(data::Expression::parse(expression)); }

  // One more column, or another in the place of one: a Tensor or a List with a value for each row of the batch, or one
  // value for all of them.
  Dataset add_column(const std::string& column, std::function<Value(const Batch& batch)> function) const;
  // A column that an expression gives: "a * b".
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
  // The columns of both side by side, row by row; both need the same number of rows. A name that is there already gets
  // _1, _2, ...
  Dataset zip(const Dataset& other) const;
  // Another order every epoch: fragments first, then rows inside of windows.
  Dataset random_shuffle(const ShuffleOptions& options = {}) const;
  // Only the fragments, which costs nothing.
  Dataset randomize_block_order(std::optional<std::int64_t> seed = {}) const;
  // Each row with this probability, the same ones every time.
  Dataset random_sample(double fraction, std::int64_t seed = 0) const;
  // The same rows in so many fragments of about equal size.
  Dataset repartition(std::int64_t fragments) const;

  std::vector<Dataset> split(std::int64_t parts) const;
  std::vector<Dataset> split_at_indices(const std::vector<std::int64_t>& indices) const;
  // `test_size`: a part of 1, or a number of rows.
  std::pair<Dataset, Dataset> train_test_split(double test_size, const TrainTestSplitOptions& options = {}) const;
  // Shards without a trainer: each is one of `parts` ranks.
  std::vector<DataShard> streaming_split(int parts) const;
  // Reads it, now, into memory.
  Dataset materialize() const;

  std::int64_t count() const;
  std::vector<std::string> columns() const;
  // "id: int64", one column a line.
  std::string schema() const;
  std::size_t num_fragments() const;
  std::vector<Dict> take(std::int64_t rows = 20) const;
  std::vector<Dict> take_all() const;
  // The first rows as one batch. Throws ValueError where there are none.
  Batch take_batch(std::int64_t batch_size = 20) const;
  // The different values of a column, in the order in which they first come.
  List unique(const std::string& column, bool ignore_nulls = false) const;
  // Of a column, read once, a batch at a time. Null where there are no values, and where there are nulls that are not
  // ignored.
  Value sum(const std::string& on, bool ignore_nulls = true) const;
  Value min(const std::string& on, bool ignore_nulls = true) const;
  Value max(const std::string& on, bool ignore_nulls = true) const;
  Value mean(const std::string& on, bool ignore_nulls = true) const;
  // The standard deviation, of a sample: ddof = 1. Of fewer values than that it is NaN.
  Value std(const std::string& on, int ddof = 1, bool ignore_nulls = true) const;
  // What it is made of, and what is known of it.
  std::string stats() const;
  void show(std::int64_t rows = 20) const;
  Batches iter_batches(const IterBatchesOptions& options = {}) const;
  Rows iter_rows() const;
  // All rows, to be released by whoever gets the stream.
  void export_to(ArrowArrayStream* stream) const;

  const std::shared_ptr<api::Plan>& plan() const { return plan_; }

 private:
  std::shared_ptr<api::Plan> plan_;  // shared by what was made from it; it remembers what was counted
};

namespace data {

using trireme::Dataset;

// A column "id" with 0, 1, ..., rows - 1.
TRIREME_API Dataset range(std::int64_t rows);
// A column "data" with a tensor in each row, filled with the row's number.
TRIREME_API Dataset range_tensor(std::int64_t rows, const std::vector<std::int64_t>& shape = {1});
// Rows with the same columns.
TRIREME_API Dataset from_items(const std::vector<Dict>& rows);
// Columns of the same length: tensors of shape [rows, ...], or lists.
TRIREME_API Dataset from_columns(const Dict& columns);
// Reads the stream to its end, and releases it.
TRIREME_API Dataset from_stream(ArrowArrayStream* stream);

}  // namespace data
}  // namespace trireme
