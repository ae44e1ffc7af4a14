#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <stdexcept>
#include <vector>

#include "boosting/connections.h"
#include "boosting/matrix_rows.h"
#include "boosting/xgboost_matrix.h"
#include "trireme/boosting/boosting.h"
#include "trireme/boosting_job.h"
#include "trireme/cancel.h"
#include "trireme/store.h"

namespace trireme::boosting {
namespace {

constexpr int kTimeoutSeconds = 1800;
constexpr const char* kModelFile = "model.ubj";

// XGBoost's communicator among the workers of this attempt.
class Communicator {
 public:
  explicit Communicator(const XgboostLibrary& library) : library_(library) {
    const int rank = context().world_rank;
    set_collective_timeout(kTimeoutSeconds);
    if (rank == 0) {
      // Also with several hosts XGBoost's own choice of an address would be a guess.
      const std::string host = context().num_nodes == 1 ? "\"127.0.0.1\"" : "null";
      const std::string config =
          "{\"dmlc_communicator\": \"rabit\", \"sortby\": 1, \"timeout\": 0, \"port\": 0, \"host\": " + host +
          ", \"n_workers\": " + std::to_string(context().world_size) + "}";
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
    const auto connections = std::make_shared<Connections>();
    library_.check(library_.XGCommunicatorInit(arguments.c_str()));
    connections->record();
    on_cancel([connections] { connections->cut(); });
    on_interrupt([] { throw std::runtime_error("XGBoost keeps the communicator of this attempt"); });
  }
  Communicator(const Communicator&) = delete;
  Communicator& operator=(const Communicator&) = delete;

  // Not in a destructor: after a failure it would wait for ranks that have exited.
  void finish() {
    library_.check(library_.XGCommunicatorFinalize());
    if (tracker_ == nullptr) return;
    library_.check(library_.XGTrackerWaitFor(tracker_, "{}"));
    library_.check(library_.XGTrackerFree(tracker_));
  }

 private:
  const XgboostLibrary& library_;
  Handle tracker_ = nullptr;
};

std::string text_of(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (value.get_if<bool>()) return value.as_bool() ? "true" : "false";
  if (value.get_if<std::int64_t>()) return std::to_string(value.as_int());
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value.as_double());
  return buffer;
}

std::vector<std::string> strings_of(const Value& list) {
  std::vector<std::string> made;
  for (const auto& each : list.as_list()) made.push_back(each.as_string());
  return made;
}

class Booster {
 public:
  Booster(const XgboostLibrary& library, const std::vector<Handle>& matrices, const Dict& params,
          const std::vector<std::string>& features)
      : library_(library) {
    library_.check(library_.XGBoosterCreate(matrices.data(), matrices.size(), &handle_));
    if (const auto checkpoint = get_checkpoint()) {
      const auto folder = checkpoint->as_directory();
      library_.check(library_.XGBoosterLoadModel(handle_, (folder.path() + "/" + kModelFile).c_str()));
    }
    for (const auto& [name, value] : params) {
      if (const auto* list = value.get_if<List>()) {  // eval_metric
        for (const auto& each : *list)
          library_.check(library_.XGBoosterSetParam(handle_, name.c_str(), text_of(each).c_str()));
      } else {
        library_.check(library_.XGBoosterSetParam(handle_, name.c_str(), text_of(value).c_str()));
      }
    }
    std::vector<const char*> names, types(features.size(), "float");
    for (const auto& feature : features) names.push_back(feature.c_str());
    library_.check(library_.XGBoosterSetStrFeatureInfo(handle_, "feature_name", names.data(), names.size()));
    library_.check(library_.XGBoosterSetStrFeatureInfo(handle_, "feature_type", types.data(), types.size()));
  }
  ~Booster() { (void)library_.XGBoosterFree(handle_); }
  Booster(const Booster&) = delete;
  Booster& operator=(const Booster&) = delete;

  int rounds() const {
    int rounds = 0;
    library_.check(library_.XGBoosterBoostedRounds(handle_, &rounds));
    return rounds;
  }
  void update(int round, Handle matrix) { library_.check(library_.XGBoosterUpdateOneIter(handle_, round, matrix)); }
  void save(const std::string& path) { library_.check(library_.XGBoosterSaveModel(handle_, path.c_str())); }

  // XGBoost returns "[3]\tvalid-logloss:0.53\tvalid-auc:0.81".
  Metrics evaluate(int round, std::vector<Handle> matrices, const std::vector<std::string>& names) {
    std::vector<const char*> pointers;
    for (const auto& name : names) pointers.push_back(name.c_str());
    const char* text = nullptr;
    library_.check(
        library_.XGBoosterEvalOneIter(handle_, round, matrices.data(), pointers.data(), names.size(), &text));
    Metrics metrics;
    const std::string line = text;
    for (std::size_t tab = line.find('\t'); tab != std::string::npos;) {
      const std::size_t end = line.find('\t', tab + 1);
      const std::string item = line.substr(tab + 1, end == std::string::npos ? end : end - tab - 1);
      const std::size_t colon = item.rfind(':');
      metrics[item.substr(0, colon)] = std::strtod(item.c_str() + colon + 1, nullptr);
      tab = end;
    }
    return metrics;
  }

 private:
  const XgboostLibrary& library_;
  Handle handle_ = nullptr;
};

// A temporary folder with the model.
class ModelFolder {
 public:
  explicit ModelFolder(Booster& booster) {
    std::string pattern = std::filesystem::temp_directory_path() / "trireme_boosting_XXXXXX";
    if (::mkdtemp(pattern.data()) == nullptr)
      throw std::runtime_error("no temporary folder can be created: " + pattern);
    path_ = pattern;
    booster.save(path_ + "/" + kModelFile);
  }
  ~ModelFolder() {
    std::error_code ignored;  // a temporary file that stays is not a failure of the training
    std::filesystem::remove_all(path_, ignored);
  }
  ModelFolder(const ModelFolder&) = delete;
  ModelFolder& operator=(const ModelFolder&) = delete;
  Checkpoint checkpoint() const { return Checkpoint::from_directory(path_); }

 private:
  std::string path_;
};

void report_round(const Metrics& metrics, Booster& booster, bool save) {
  if (!save || context().world_rank != 0) {
    report(metrics);
    return;
  }
  const ModelFolder folder(booster);
  report(metrics, folder.checkpoint());
}

void train(const Config& config) {
  const XgboostLibrary library = XgboostLibrary::load(config["library"].as_string());
  Communicator communicator(library);
  const Dict& params = config["params"].as_dict();
  const MatrixColumns columns{strings_of(config["features"]), config["label_column"].as_string(),
                              config["weight_column"].as_string()};
  const XgboostMatrix matrix(library, "train", columns, params, nullptr);
  std::vector<Handle> all{matrix.handle()};
  std::vector<std::string> names;
  std::vector<std::unique_ptr<XgboostMatrix>> evaluated;
  for (const auto& name : strings_of(config["datasets"])) {
    if (name == "train") continue;
    evaluated.push_back(std::make_unique<XgboostMatrix>(library, name, columns, params, matrix.handle()));
    all.push_back(evaluated.back()->handle());
    names.push_back(name);
  }
  const std::vector<Handle> others(all.begin() + 1, all.end());
  Booster booster(library, all, params, columns.features);
  const int rounds = static_cast<int>(config["num_boost_round"].as_int());
  const std::int64_t frequency = config["checkpoint_frequency"].as_int();
  bool saved = true;
  Metrics metrics;
  for (int round = booster.rounds(); round < rounds; ++round) {
    check_interrupted();
    booster.update(round, matrix.handle());
    metrics = names.empty() ? Metrics() : booster.evaluate(round, others, names);
    saved = frequency > 0 && (round + 1) % frequency == 0;
    report_round(metrics, booster, saved);
  }
  if (!saved && config["checkpoint_at_end"].as_bool()) report_round(metrics, booster, true);
  communicator.finish();
}
TRIREME_TRAIN_FUNCTION(train);

Config checked(const BoostingOptions& options) {
  validate(options.scaling);
  validate(options.run);
  BoostingJob job{.library = "xgboost",
                  .params = options.params,
                  .num_boost_round = options.num_boost_round,
                  .label_column = options.label_column,
                  .weight_column = options.weight_column.value_or(""),
                  .min_workers = static_cast<int>(std::max<std::int64_t>(options.scaling.num_workers.min, 1)),
                  .max_workers = static_cast<int>(std::max<std::int64_t>(options.scaling.num_workers.max, 1)),
                  .use_gpu = options.scaling.use_gpu};
  const Resources resources = options.scaling.resources_per_worker.value_or(Resources());
  if (const auto cpus = resources.find("CPU"); cpus != resources.end()) job.cpus_per_worker = cpus->second;
  List names;
  for (const auto& [name, dataset] : options.datasets) {
    job.datasets[name] = described(dataset);
    names.emplace_back(name);
  }
  const CheckedBoostingJob made = check_boosting_job(job);
  for (const auto& line : made.corrections) std::fprintf(stderr, "trireme: warning: %s\n", line.c_str());
  const auto& checkpoints = options.run.checkpoint_config;
  return {{"library", options.library.value_or("")},
          {"params", made.params},
          {"features", List(made.features.begin(), made.features.end())},
          {"label_column", job.label_column},
          {"weight_column", job.weight_column},
          {"num_boost_round", options.num_boost_round},
          {"datasets", std::move(names)},
          {"checkpoint_frequency", checkpoints.checkpoint_frequency},
          {"checkpoint_at_end", checkpoints.checkpoint_at_end.value_or(true)}};
}

}  // namespace

Result XgboostTrainer::fit() const {
  return DataParallelTrainer(&train, {.config = checked(options_),
                                      .datasets = options_.datasets,
                                      .dataset_config = options_.dataset_config,
                                      .scaling = options_.scaling,
                                      .run = options_.run,
                                      .resume_from_checkpoint = options_.resume_from_checkpoint,
                                      .metadata = options_.metadata,
                                      .owns_loop = true})
      .fit();
}

}  // namespace trireme::boosting
