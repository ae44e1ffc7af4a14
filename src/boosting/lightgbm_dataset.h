#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "boosting/lightgbm_library.h"
#include "boosting/worker_rows.h"

namespace trireme::boosting {

// A model that was loaded from a file.
class LightgbmModel {
 public:
  LightgbmModel(const LightgbmLibrary& library, const std::string& path);
  ~LightgbmModel() { (void)library_.LGBM_BoosterFree(handle_); }
  LightgbmModel(const LightgbmModel&) = delete;
  LightgbmModel& operator=(const LightgbmModel&) = delete;

  void* handle() const { return handle_; }
  int rounds() const { return rounds_; }
  // The raw scores of the rows, row by row, with one for each class.
  std::vector<double> raw_scores(const std::vector<double>& matrix, std::int64_t rows) const;

 private:
  const LightgbmLibrary& library_;
  void* handle_ = nullptr;
  int rounds_ = 0;
};

// A binned dataset of this worker's rows. LightGBM reads their Arrow columns if they are in memory; otherwise they are
// read three times. It keeps only the binned rows.
class LightgbmDataset {
 public:
  // `reference`: the dataset whose bins to use; nullptr: its own, on which all workers agree. `earlier`: the model to
  // continue, whose scores are the initial ones; nullptr: none.
  LightgbmDataset(const LightgbmLibrary& library, const std::string& dataset, const RowColumns& columns,
                  const Dict& params, const LightgbmDataset* reference, const LightgbmModel* earlier);
  ~LightgbmDataset() { (void)library_.LGBM_DatasetFree(handle_); }
  LightgbmDataset(const LightgbmDataset&) = delete;
  LightgbmDataset& operator=(const LightgbmDataset&) = delete;

  void* handle() const { return handle_; }

 private:
  class Fields;

  void read_columns(WorkerRows& rows, const std::string& params, const LightgbmDataset* reference, Fields& fields);
  void create(WorkerRows& rows, std::int64_t count, const std::string& params);
  void push(WorkerRows& rows, Fields& fields);

  const LightgbmLibrary& library_;
  void* handle_ = nullptr;
};

// LightGBM's text of parameters: "name=value name=value".
std::string lightgbm_text(const Dict& params);

}  // namespace trireme::boosting
