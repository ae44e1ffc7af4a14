#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "base/network.h"
#include "boosting/boosting_job_run.h"
#include "boosting/round_reporter.h"
#include "boosting/xgboost_booster.h"
#include "boosting/xgboost_matrix.h"
#include "boosting/xgboost_stopping.h"
#include "trireme/boosting/boosting.h"
#include "trireme/boosting_job.h"
#include "trireme/cancel.h"
#include "trireme/context.h"
#include "trireme/store.h"

namespace trireme::boosting {
namespace {

constexpr int kTimeoutSeconds = 1800;
constexpr const char* kXgboostModel = "model.ubj";

// XGBoost's communicator among the workers of this attempt. One worker alone has none.
class Communicator {
 public:
  explicit Communicator(const XgboostLibrary& library) : library_(library) {
    if (context().world_size == 1) return;
    const int rank = context().world_rank;
    set_collective_timeout(kTimeoutSeconds);
    if (rank == 0) {
      const std::string config =
          "{\"dmlc_communicator\": \"rabit\", \"sortby\": 1, \"timeout\": 0, \"port\": 0, \"host\": \"" +
          base::node_address(context().num_nodes) + "\", \"n_workers\": " + std::to_string(context().world_size) + "}";
      library_.check(library_.XGTrackerCreate(config.c_str(), &tracker_));
      library_.check(library_.XGTrackerRun(tracker_, "{}"));
      const char* arguments = nullptr;
      library_.check(library_.XGTrackerWorkerArgs(tracker_, &arguments));
      store::set("xgboost/tracker", arguments);
    }
    std::string arguments = store::get("xgboost/tracker", std::chrono::seconds(kTimeoutSeconds));
    char task[16];
    std::snprintf(task, sizeof task, "%010d", rank);  // ranks are sorted as text
    arguments.erase(arguments.rfind('}'));
    arguments +=
        ", \"dmlc_task_id\": \"" + std::string(task) + "\", \"dmlc_timeout\": " + std::to_string(kTimeoutSeconds) + "}";
    const auto connections = std::make_shared<base::TcpConnections>();
    library_.check(library_.XGCommunicatorInit(arguments.c_str()));
    connections->record();
    on_cancel([connections] { connections->cut(); });
    on_interrupt([] { throw std::runtime_error("XGBoost keeps the communicator of this attempt"); });
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Not in a destructor: after a failure it would wait for ranks that have exited.
  void finish() {
    if (context().world_size == 1) return;
    library_.check(library_.XGCommunicatorFinalize());
    if (tracker_ == nullptr) return;
    library_.check(library_.XGTrackerWaitFor(tracker_, "{}"));
    library_.check(library_.XGTrackerFree(tracker_));
  }

 private:
  const XgboostLibrary& library_;
  Handle tracker_ = nullptr;
};

// The matrices of the job's datasets, the one to train on first.
class Matrices {
 public:
  Matrices(const XgboostLibrary& library, const Config& config, const RowColumns& columns)
      : evaluated_(evaluated_datasets(config)) {
    std::vector<std::string> names{"train"};
    names.insert(names.end(), evaluated_.begin(), evaluated_.end());
    if (keeps_files(config)) cache_ = std::make_unique<TemporaryFolder>();
    for (const auto& name : names) {
      const std::string cache = cache_ ? cache_->path() + "/" + std::to_string(matrices_.size()) : "";
      const Handle reference = matrices_.empty() ? nullptr : matrices_.front()->handle();
      matrices_.push_back(
          std::make_unique<XgboostMatrix>(library, name, columns, config["params"].as_dict(), reference, cache));
    }
    if (config["evaluate_train"].as_bool()) evaluated_.insert(evaluated_.begin(), "train");
  }

  const std::vector<std::string>& evaluated() const { return evaluated_; }
  std::vector<Handle> handles() const {
    std::vector<Handle> handles;
    for (const auto& each : matrices_) handles.push_back(each->handle());
    return handles;
  }

 private:
  std::vector<std::string> evaluated_;
  std::unique_ptr<TemporaryFolder> cache_;  // outlives the matrices, which read its files
  std::vector<std::unique_ptr<XgboostMatrix>> matrices_;
};

void train_xgboost(const Config& config) {
  const XgboostLibrary library = XgboostLibrary::load(config["library"].as_string());
  Communicator communicator(library);
  const RowColumns columns = job_columns(config);
  const Matrices matrices(library, config, columns);
  XgboostBooster booster(library, matrices.handles(), config, columns);
  Dict resumed;
  if (const auto checkpoint = get_checkpoint()) {
    booster.load(checkpoint->as_directory().path() + "/" + kXgboostModel);
    resumed = checkpoint->get_metadata();
    warn_of_random_numbers("XGBoost", config);
  }
  XgboostStopping stopping(config["early_stopping_rounds"].as_int(), resumed);
  RoundReporter reporter(
      config, kXgboostModel, [&](const std::string& path) { booster.save(path); }, [&] { return stopping.metadata(); });
  const int rounds = static_cast<int>(config["num_boost_round"].as_int());
  const bool draws = config["params"].as_dict().contains("seed_per_iteration");
  const int done = booster.rounds();
  bool stopped = stopping.has_stopped();
  if (done < rounds && !stopped) {
    for (int round = done; round < rounds && !stopped; ++round) {
      check_interrupted();
      booster.update(round);
      const Metrics metrics = booster.evaluate(round, matrices.evaluated());
      stopped = stopping.after_round(round, metrics, booster);
      if (reporter.after_round(round + 1, metrics) && draws) booster.forget_random_numbers();
    }
    reporter.after_training(booster.rounds());
  }
  communicator.finish();
}
TRIREME_TRAIN_FUNCTION(train_xgboost);

}  // namespace

Result XgboostTrainer::fit() const {
  // A missing library is reported before anything starts, too.
  const auto load = [this] { (void)XgboostLibrary::load(options_.library.value_or("")); };
  return run_boosting("xgboost", options_, &train_xgboost, load);
}

}  // namespace trireme::boosting
