#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/result.h"
#include "trireme/config.h"
#include "trireme/context.h"
#include "trireme/data.h"

namespace trireme::data {
class Shard;
}

namespace trireme::api {

// The datasets that a trainer was given.
struct TrainerDatasets {
  std::map<std::string, Dataset> by_name;
  DataConfig config;
};

// In the driver, before anything starts: finds the fragments, counts what must be counted, draws seeds. The result is
// what every worker must have alike. Refuses a dataset that is too small for that many workers.
base::Result<Dict> plan_datasets(const TrainerDatasets& datasets, int max_workers);

// In a worker, while a training function runs: its parts of the datasets. They are made when they are asked for.
class WorkerDatasets {
 public:
  // `planned`: of plan_datasets().
  WorkerDatasets(const TrainerDatasets& datasets, Dict planned, const Context& context);
  base::Result<DataShard> get(const std::string& name);
  // What was read so far: rows, bytes, wait_s; empty where nothing was asked for.
  Dict totals() const;
  // The training function has returned. `positions`: of the checkpoint that it began with.
  base::Result<void> finish(const Dict& positions);

 private:
  base::Result<DataShard> make(const std::string& name, const Dataset& dataset);
  std::string digest_folder() const;  // empty: samples are not logged

  TrainerDatasets datasets_;
  Dict planned_;
  Context context_;
  std::map<std::string, DataShard> made_;
  std::vector<std::shared_ptr<data::Shard>> shards_;  // shared with those handles
};

}  // namespace trireme::api
