#pragma once

#include <map>
#include <memory>
#include <mutex>
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

// The datasets of a trainer.
struct TrainerDatasets {
  std::map<std::string, Dataset> by_name;
  DataConfig config;
};

// In the driver, before anything starts: lists the fragments, counts rows if needed, draws seeds. The result must be
// equal on all workers. Rejects a dataset that is too small for the number of workers.
base::Result<Dict> plan_datasets(const TrainerDatasets& datasets, int max_workers);

// In a worker, while a training function runs: its shards of the datasets, created on demand.
class WorkerDatasets {
 public:
  // `planned`: from plan_datasets().
  WorkerDatasets(const TrainerDatasets& datasets, Dict planned, const Context& context);
  base::Result<DataShard> get(const std::string& name);
  // Totals so far: rows, bytes, wait_s, and logged: the rows logged per dataset, up to its last position. Empty if no
  // dataset was requested.
  Dict totals() const;
  // The training function has returned. `positions`: of the checkpoint that it started with.
  base::Result<void> finish(const Dict& positions);

 private:
  base::Result<DataShard> make(const std::string& name, const Dataset& dataset);

  mutable std::mutex mutex_;  // one thread may report while another one requests a dataset

  TrainerDatasets datasets_;
  Dict planned_;
  Context context_;
  std::map<std::string, DataShard> made_;
  std::vector<std::pair<std::string, std::shared_ptr<data::Shard>>> shards_;  // shared with those handles
};

}  // namespace trireme::api
