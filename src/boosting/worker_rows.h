#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "boosting/feature_columns.h"
#include "boosting/row_columns.h"
#include "trireme/data.h"

namespace trireme::boosting {

inline constexpr std::int64_t kBatchRows = 65536;  // as in Python

// Rows as numbers.
struct RowBatch {
  std::int64_t rows = 0;
  std::unique_ptr<const FeatureColumns> columns;  // without groups
  std::vector<double> matrix;                     // with groups: the features, row by row; missing values are NaN
  std::vector<float> labels;
  std::vector<float> weights;        // empty: none
  std::vector<std::int32_t> groups;  // the number of each row's group; equal ones follow each other; empty: none
};

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
  // After the first pass: whether the rows are in memory as columns.
  bool are_kept() const { return all_kept_; }
  // Passes them on; there are no more passes.
  std::vector<RowBatch> taken();

 private:
  const Batch* read();
  RowBatch numbers(const Batch& batch) const;
  std::vector<float> complete(const ExportedBatch& rows, const char* what, const std::string& column) const;

  std::string dataset_;
  const RowColumns& columns_;
  DataShard shard_;
  std::optional<Batches::Iterator> at_;
  std::vector<RowBatch> kept_;
  bool keeps_ = true;  // until the rows are too large
  bool all_kept_ = false;
  std::size_t next_kept_ = 0;
  std::int64_t bytes_ = 0;
  RowBatch current_;
  std::unique_ptr<GroupedRows> grouped_;  // with groups
};

// The sorted values of the categorical features of a dataset on all workers. Collective.
Dict agreed_categories(const std::string& dataset, const RowColumns& columns, const std::vector<std::string>& names);

// The value of every rank, in order of ranks. Collective.
std::vector<Value> gathered(const std::string& key, const Value& value);

}  // namespace trireme::boosting
