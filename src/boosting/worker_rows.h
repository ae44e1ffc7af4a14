#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "trireme/data.h"

namespace trireme::boosting {

inline constexpr std::int64_t kBatchRows = 65536;  // as in Python

// What the columns of the datasets are. Empty names: there is none.
struct RowColumns {
  std::vector<std::string> features;
  std::string label;
  std::string weight;
  std::string group;
  // The values of the categorical features, sorted: {name: [strings or ints]}. A category is the index of its value.
  Dict categories;
};

// Rows as numbers. Missing values are NaN.
struct RowBatch {
  std::int64_t rows = 0;
  std::vector<double> matrix;  // the features, row by row
  std::vector<float> labels;
  std::vector<float> weights;        // empty: none
  std::vector<std::int32_t> groups;  // the number of each row's group; equal ones follow each other; empty: none
};

class ExportedBatch;
class GroupedRows;

// This worker's rows of a dataset. Every pass returns the same batches, as Python's WorkerRows does: the last bits of a
// model may depend on them.
class WorkerRows {
 public:
  // `everything`: all query groups on every worker.
  WorkerRows(std::string dataset, const RowColumns& columns, bool everything = false);
  ~WorkerRows();

  const std::string& dataset() const { return dataset_; }
  const RowColumns& columns() const { return columns_; }
  // Reads the rows once and counts them. Throws on every rank if one has none: the others would wait for it.
  std::int64_t count();
  // The next pass begins.
  void rewind();
  // nullptr after the last batch. Valid until the next call.
  const RowBatch* next();
  // The library has its own copy now.
  void release();

 private:
  // The next batch of the dataset, which is kept between the passes unless the rows are too large.
  const Batch* read();
  void fill(const Batch& batch);
  void fill_complete(const ExportedBatch& rows, const char* what, const std::string& column,
                     std::vector<float>& out) const;

  std::string dataset_;
  const RowColumns& columns_;
  DataShard shard_;
  std::optional<Batches::Iterator> at_;
  std::vector<Batch> kept_;
  bool all_kept_ = false;
  bool keeps_ = true;
  std::size_t next_kept_ = 0;
  std::int64_t bytes_ = 0;
  std::optional<Batch> current_;
  std::unique_ptr<GroupedRows> grouped_;  // with groups
  RowBatch batch_;
};

// The sorted values of the categorical features of a dataset on all workers. Collective.
Dict agreed_categories(const std::string& dataset, const RowColumns& columns, const std::vector<std::string>& names);

// The value of every rank, in order of ranks. Collective.
std::vector<Value> gathered(const std::string& key, const Value& value);

}  // namespace trireme::boosting
