#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "boosting/worker_rows.h"

namespace trireme::boosting {

// The rows of this worker's query groups, with those of a group behind each other, in order of first appearance. Every
// worker reads all rows and keeps its own. The first groups are those of rank 0, 1 and so on, so that no rank has none;
// the rank of the others follows from their values.
class GroupedRows {
 public:
  // `everything`: the groups of all workers.
  GroupedRows(std::string dataset, const RowColumns& columns, bool everything);

  // `batch`: all of its rows.
  void take(const RowBatch& batch);
  // After the last batch. Returns the number of rows.
  std::int64_t finish();
  void rewind() { next_ = 0; }
  const RowBatch* next();

 private:
  bool is_mine(const std::string& key);
  std::int32_t group_of(const std::string& key);  // -1: of another worker

  std::string dataset_;
  const RowColumns& columns_;
  bool everything_;
  std::map<std::string, int> first_;  // with their ranks
  std::map<std::string, std::int32_t> numbers_;
  // The features of the rows, by batch, and where those of each row are.
  std::vector<std::vector<double>> matrices_;
  std::vector<const double*> features_;
  RowBatch all_;  // without features
  std::vector<std::int64_t> order_;
  std::size_t next_ = 0;
  RowBatch batch_;
};

}  // namespace trireme::boosting
