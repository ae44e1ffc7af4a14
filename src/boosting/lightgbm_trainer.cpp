#include <algorithm>
#include <cstdio>
#include <memory>
#include <stdexcept>
#include <vector>

#include "boosting/boosting_job_run.h"
#include "boosting/lightgbm_booster.h"
#include "boosting/lightgbm_dataset.h"
#include "boosting/lightgbm_network.h"
#include "boosting/round_reporter.h"
#include "trireme/boosting/boosting.h"
#include "trireme/boosting_job.h"
#include "trireme/context.h"

namespace trireme::boosting {
namespace {

constexpr const char* kLightgbmModel = "model.txt";
constexpr const char* kHistory = "lightgbm_history";  // of a checkpoint, as in Python: the metrics of all rounds

// Ends the training if no metric of a dataset has improved for a number of rounds, as lightgbm.early_stopping().
class LightgbmStopping {
 public:
  LightgbmStopping(std::int64_t patience, const Dict& params, const Dict& checkpoint) : patience_(patience) {
    if (const Value* first = params.find("first_metric_only")) first_only_ = first->get_if<bool>() && first->as_bool();
    if (const Value* delta = params.find("early_stopping_min_delta")) min_delta_ = delta->as_double();
    const Value* history = checkpoint.find(kHistory);
    if (history == nullptr) return;
    for (const Value& results : history->as_list()) after_round(results.as_list());
  }

  bool has_stopped() const { return stopped_; }
  // Also those that found no split and have no tree.
  std::int64_t rounds() const { return static_cast<std::int64_t>(history_.size()); }
  void after_round(const List& results) {
    const std::int64_t round = rounds();
    history_.emplace_back(results);
    if (patience_ == 0) return;
    best_.resize(results.size());
    for (std::size_t each = 0; each < results.size(); ++each) {
      const double value = results[each][2].as_double();
      const double best = best_[each].value;
      if (round == 0 || (results[each][3].as_bool() ? value > best + min_delta_ : value < best - min_delta_)) {
        best_[each] = {value, round};
      } else if (round - best_[each].round >= patience_ && stops_by(results[each], results[0])) {
        stopped_ = true;
        return;
      }
    }
  }
  Dict metadata() const { return {{kHistory, history_}}; }

 private:
  struct Best {
    double value = 0;
    std::int64_t round = 0;
  };

  bool stops_by(const Value& result, const Value& first) const {
    return result[0] != Value("train") && (!first_only_ || result[1] == first[1]);
  }

  std::int64_t patience_;
  bool first_only_ = false;
  double min_delta_ = 0;
  List history_;
  std::vector<Best> best_;
  bool stopped_ = false;
};

Metrics flat(const List& results) {
  Metrics metrics;
  for (const Value& each : results) metrics[each[0].as_string() + "-" + each[1].as_string()] = each[2];
  return metrics;
}

// The params of the job, with what follows from the number of workers and the columns.
Dict complete_params(const Config& config, const RowColumns& columns) {
  Dict params{{"num_threads", 1}, {"verbosity", -1}};
  for (const auto& [name, value] : config["params"].as_dict()) params[name] = value;
  params["num_machines"] = context().world_size;
  if (context().world_size == 1) params["tree_learner"] = "serial";
  List indices;
  for (std::size_t each = 0; each < columns.features.size(); ++each) {
    if (columns.categories.contains(columns.features[each])) indices.emplace_back(each);
  }
  if (!indices.empty()) params["categorical_column"] = std::move(indices);
  return params;
}

class LightgbmJob {
 public:
  LightgbmJob(const LightgbmLibrary& library, const Config& config, const LightgbmModel* earlier)
      : config_(config),
        columns_(job_columns(config)),
        params_(complete_params(config, columns_)),
        dataset_(library, "train", columns_, params_, nullptr, earlier),
        booster_(library, dataset_, params_, columns_) {
    for (const auto& name : evaluated_datasets(config)) {
      evaluated_.push_back(std::make_unique<LightgbmDataset>(library, name, columns_, params_, &dataset_, earlier));
      booster_.add_evaluation(*evaluated_.back(), name);
    }
    if (earlier != nullptr) {
      booster_.put_first(*earlier);
      warn_of_random_numbers("LightGBM", config);
    }
  }

  void run(LightgbmStopping& stopping) {
    RoundReporter reporter(
        config_, kLightgbmModel, [this](const std::string& path) { booster_.save(path); },
        [&stopping] { return stopping.metadata(); });
    const std::int64_t rounds = config_["num_boost_round"].as_int();
    const std::int64_t done = std::max<std::int64_t>(booster_.rounds(), stopping.rounds());
    for (std::int64_t round = done; round < rounds && !stopping.has_stopped(); ++round) {
      check_interrupted();
      for (const Dict& params : lightgbm_round_params(params_, round)) booster_.set_params(params);
      booster_.update();
      const List results = booster_.evaluate(config_["evaluate_train"].as_bool());
      stopping.after_round(results);
      reporter.after_round(booster_.rounds(), flat(results));
    }
    reporter.after_training(booster_.rounds());
  }

 private:
  const Config& config_;
  RowColumns columns_;
  Dict params_;
  LightgbmDataset dataset_;
  std::vector<std::unique_ptr<LightgbmDataset>> evaluated_;
  LightgbmBooster booster_;
};

void train_lightgbm(const Config& config) {
  const LightgbmLibrary library = LightgbmLibrary::load(config["library"].as_string());
  LightgbmNetwork network(library);
  std::unique_ptr<LightgbmModel> earlier;
  Dict resumed;
  if (const auto checkpoint = get_checkpoint(); checkpoint && lightgbm_continues(config["params"].as_dict())) {
    earlier = std::make_unique<LightgbmModel>(library, checkpoint->as_directory().path() + "/" + kLightgbmModel);
    resumed = checkpoint->get_metadata();
  }
  LightgbmStopping stopping(config["early_stopping_rounds"].as_int(), config["params"].as_dict(), resumed);
  const bool done =
      earlier && std::max<std::int64_t>(earlier->rounds(), stopping.rounds()) >= config["num_boost_round"].as_int();
  if (!done && !stopping.has_stopped()) LightgbmJob(library, config, earlier.get()).run(stopping);
  network.finish();
}
TRIREME_TRAIN_FUNCTION(train_lightgbm);

}  // namespace

Result LightgbmTrainer::fit() const {
  // A missing library is reported before anything starts, too.
  const auto load = [this] { (void)LightgbmLibrary::load(options_.library.value_or("")); };
  return run_boosting("lightgbm", options_, &train_lightgbm, load);
}

}  // namespace trireme::boosting
