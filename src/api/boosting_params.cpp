#include "api/boosting_params.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "trireme/config.h"

namespace trireme {
namespace api {
namespace {

using Names = std::initializer_list<const char*>;

constexpr std::array kCpu = {"cpu"};

// The name under which one of the aliases of a parameter is given; nullptr: none is.
const char* param_given_as(const Dict& params, Names aliases) {
  for (const char* name : aliases) {
    if (params.find(name) != nullptr) return name;
  }
  return nullptr;
}

std::string param_json(const Value& value) { return base::to_json(value); }

std::string to_lower_case(std::string text) {
  std::transform(text.begin(), text.end(), text.begin(), [](unsigned char each) { return std::tolower(each); });
  return text;
}

std::string lower_case_param(const Dict& params, const char* name) {
  const Value* value = params.find(name);
  return value != nullptr && value->get_if<std::string>() ? to_lower_case(value->as_string()) : std::string();
}

[[noreturn]] void refuse_param(const BoostingJob& job, const char* name, const std::string& why) {
  throw ConfigError(fmt::format("params[{:?}] = {}: {}", name, param_json(*job.params.find(name)), why));
}

// The number of threads of a worker: its CPUs. More would take those of other workers.
void set_threads(const BoostingJob& job, CheckedBoostingJob& checked, const char* canonical, Names aliases) {
  const auto cpus = std::max<std::int64_t>(static_cast<std::int64_t>(std::floor(job.cpus_per_worker)), 1);
  const char* name = param_given_as(job.params, aliases);
  if (name != nullptr) {
    const Value& value = *job.params.find(name);
    if (!value.get_if<std::int64_t>()) refuse_param(job, name, "expected an int");
    const std::int64_t asked = value.as_int();
    if (asked > 0 && asked <= cpus) return;
    for (const char* each : aliases) checked.params.erase(each);
    checked.corrections.push_back(
        fmt::format("params[{:?}] = {} does not match the workers, which have {} CPU{} each: using {}; "
                    "set ScalingConfig(resources_per_worker={{\"CPU\": ...}}) for more",
                    name, asked, cpus, cpus == 1 ? "" : "s", cpus));
  }
  checked.params[canonical] = cpus;
}

void check_device(const BoostingJob& job, Names aliases) {
  const char* name = param_given_as(job.params, aliases);
  if (name == nullptr || job.use_gpu) return;
  const std::string device = lower_case_param(job.params, name);
  if (std::find(kCpu.begin(), kCpu.end(), device) == kCpu.end()) {
    refuse_param(job, name, "the workers have no GPU; set ScalingConfig(use_gpu=True), or use \"cpu\"");
  }
}

// The library's own loop takes these from its parameters; ours has arguments for them.
void refuse_arguments(const BoostingJob& job, Names rounds, Names stopping) {
  if (const char* name = param_given_as(job.params, rounds))
    refuse_param(job, name, "pass num_boost_round to the trainer instead");
  if (const char* name = param_given_as(job.params, stopping))
    refuse_param(job, name, "pass early_stopping_rounds to the trainer instead");
}

void check_objective(const BoostingJob& job, Names aliases, Names multi_class, Names num_class, Names ranking) {
  const char* name = param_given_as(job.params, aliases);
  if (name == nullptr) return;
  const std::string objective = lower_case_param(job.params, name);
  const auto is_one_of = [&](Names names) { return std::find(names.begin(), names.end(), objective) != names.end(); };
  if (is_one_of(multi_class) && param_given_as(job.params, num_class) == nullptr) {
    refuse_param(job, name, "needs params[\"num_class\"]: the number of classes");
  }
  if (is_one_of(ranking) && job.group_column.empty()) {
    refuse_param(job, name, "ranking needs group_column: the column with the query of each row");
  }
}

bool is_fraction(const Dict& params, const char* name) {
  const Value* value = params.find(name);
  return value != nullptr && value->is_number() && value->as_double() != 1;
}

// XGBoost seeds its random numbers anew in every round; the trainers do the rest where they save a checkpoint.
void seed_rounds(const BoostingJob& job, CheckedBoostingJob& checked) {
  std::vector<std::string> drawn;
  for (const char* name : {"subsample", "colsample_bytree", "colsample_bylevel", "colsample_bynode"}) {
    if (is_fraction(job.params, name)) drawn.emplace_back(name);
  }
  if (lower_case_param(job.params, "booster") == "dart") drawn.emplace_back("booster");
  if (drawn.empty()) return;
  if (const Value* given = job.params.find("seed_per_iteration")) {
    if (given->get_if<bool>() && !given->as_bool()) checked.unrepeatable = drawn;
    return;
  }
  checked.params["seed_per_iteration"] = true;
}

using Aliases = std::vector<const char*>;

const Aliases kBaggingFreq{"bagging_freq", "subsample_freq"};
const Aliases kBoosting{"boosting", "boosting_type", "boost"};

const Value* given_param(const Dict& params, const Aliases& aliases) {
  for (const char* name : aliases) {
    if (const Value* value = params.find(name)) return value;
  }
  return nullptr;
}

bool is_sampled(const Dict& params, const Aliases& aliases) {
  const Value* value = given_param(params, aliases);
  return value != nullptr && value->is_number() && value->as_double() != 1;
}

bool is_set(const Dict& params, const Aliases& aliases) {
  const Value* value = given_param(params, aliases);
  return value != nullptr && value->get_if<bool>() && value->as_bool();
}

std::string text_param(const Dict& params, const Aliases& aliases) {
  const Value* value = given_param(params, aliases);
  return value != nullptr && value->get_if<std::string>() ? value->as_string() : std::string();
}

std::int64_t int_param(const Dict& params, const Aliases& aliases, std::int64_t otherwise) {
  const Value* value = given_param(params, aliases);
  return value != nullptr && value->get_if<std::int64_t>() ? value->as_int() : otherwise;
}

// SplitMix64. LightGBM's own generator is linear: seeds with a small distance, which it uses for the parts of a bag,
// would give the bag of another round again.
std::int64_t seed_of_round(std::int64_t seed, std::int64_t round) {
  std::uint64_t mixed = static_cast<std::uint64_t>(seed) * 0x9e3779b97f4a7c15U + static_cast<std::uint64_t>(round);
  mixed += 0x9e3779b97f4a7c15U;
  mixed = (mixed ^ (mixed >> 30)) * 0xbf58476d1ce4e5b9U;
  mixed = (mixed ^ (mixed >> 27)) * 0x94d049bb133111ebU;
  mixed ^= mixed >> 31;
  return static_cast<std::int64_t>(mixed & 0x3fffffff);
}

// The seed of one kind of random numbers: its own, or that of everything, or LightGBM's default.
std::int64_t base_seed(const Dict& params, const Aliases& own, std::int64_t otherwise) {
  return int_param(params, own, int_param(params, {"seed", "random_seed", "random_state"}, otherwise));
}

}  // namespace

std::vector<std::string> lightgbm_unrepeatable(const Dict& params) {
  std::vector<std::string> found;
  const std::string boosting = text_param(params, kBoosting);
  if (boosting == "dart" || boosting == "goss") found.emplace_back("boosting");
  if (text_param(params, {"data_sample_strategy"}) == "goss") found.emplace_back("data_sample_strategy");
  if (is_set(params, {"use_quantized_grad"})) found.emplace_back("use_quantized_grad");
  return found;
}

void check_xgboost_params(const BoostingJob& job, CheckedBoostingJob& checked) {
  check_device(job, {"device"});
  const std::string method = lower_case_param(job.params, "tree_method");
  if (method == "gpu_hist") refuse_param(job, "tree_method", "use tree_method=\"hist\" with device=\"cuda\"");
  if (method == "exact") {
    refuse_param(job, "tree_method", "cannot train on rows that are read in batches; use \"hist\" or \"approx\"");
  }
  if (lower_case_param(job.params, "booster") == "gblinear") {
    refuse_param(job, "booster", "cannot train on quantized rows; use \"gbtree\" or \"dart\"");
  }
  refuse_arguments(job, {"num_round", "num_boost_round", "n_estimators"}, {"early_stopping_rounds"});
  check_objective(job, {"objective"}, {"multi:softmax", "multi:softprob"}, {"num_class"},
                  {"rank:ndcg", "rank:map", "rank:pairwise"});
  seed_rounds(job, checked);
  set_threads(job, checked, "nthread", {"nthread", "n_jobs"});
}

void check_lightgbm_params(const BoostingJob& job, CheckedBoostingJob& checked) {
  check_device(job, {"device_type", "device"});
  refuse_arguments(job,
                   {"num_iterations", "num_iteration", "n_iter", "num_tree", "num_trees", "num_round", "num_rounds",
                    "nrounds", "num_boost_round", "n_estimators", "max_iter"},
                   {"early_stopping_round", "early_stopping_rounds", "early_stopping", "n_iter_no_change"});
  for (const char* name : {"machines", "workers", "nodes", "machine_list_filename", "machine_list_file", "machine_list",
                           "mlist", "local_listen_port", "local_port", "port"}) {
    if (job.params.find(name) != nullptr)
      refuse_param(job, name, "the trainer sets the addresses of the workers; remove it");
  }
  if (const char* name = param_given_as(job.params, {"num_machines", "num_machine"})) {
    const Value& value = *job.params.find(name);
    if (!(value.get_if<std::int64_t>() && value.as_int() == job.max_workers && job.min_workers == job.max_workers)) {
      refuse_param(
          job, name,
          fmt::format("the trainer has {} workers; remove it, the trainer sets it",
                      job.min_workers == job.max_workers ? fmt::to_string(job.max_workers)
                                                         : fmt::format("{} to {}", job.min_workers, job.max_workers)));
    }
    checked.params.erase(name);
  }
  const char* learner = param_given_as(job.params, {"tree_learner", "tree", "tree_type", "tree_learner_type"});
  if (learner != nullptr && job.max_workers > 1) {
    const std::string kind = lower_case_param(job.params, learner);
    if (kind.starts_with("serial")) {
      refuse_param(job, learner, "every worker would train a model of its own; use \"data\" or \"voting\"");
    }
    if (kind.starts_with("feature")) {
      refuse_param(job, learner,
                   "needs all rows on every worker, and the trainer divides them; use \"data\" or \"voting\"");
    }
  }
  if (learner == nullptr) checked.params["tree_learner"] = "data";
  const char* partition = param_given_as(job.params, {"pre_partition", "is_pre_partition"});
  if (partition != nullptr && job.params.find(partition)->get_if<bool>() && !job.params.find(partition)->as_bool()) {
    checked.corrections.push_back(fmt::format(
        "params[{:?}] = false does not match the workers, which read their own rows: using true", partition));
    checked.params.erase(partition);
  }
  checked.params["pre_partition"] = true;
  check_objective(job, {"objective", "objective_type", "app", "application", "loss"},
                  {"multiclass", "softmax", "multiclassova", "multiclass_ova", "ova", "ovr"},
                  {"num_class", "num_classes"},
                  {"lambdarank", "rank_xendcg", "xendcg", "xe_ndcg", "xe_ndcg_mart", "xendcg_mart"});
  if (!job.early_stopping_rounds.is_null() && text_param(job.params, kBoosting) == "dart") {
    throw ConfigError(
        "early_stopping_rounds: LightGBM cannot stop early with boosting=\"dart\", which changes earlier trees");
  }
  checked.unrepeatable = lightgbm_unrepeatable(job.params);
  set_threads(job, checked, "num_threads", {"num_threads", "num_thread", "nthread", "nthreads", "n_jobs"});
}

}  // namespace api

std::vector<Dict> lightgbm_round_params(const Dict& params, std::int64_t round) {
  const std::int64_t every = api::int_param(params, api::kBaggingFreq, 0);
  const bool bags =
      every > 0 && (api::is_sampled(params, {"bagging_fraction", "sub_row", "subsample", "bagging"}) ||
                    api::is_sampled(params, {"pos_bagging_fraction", "pos_sub_row", "pos_subsample", "pos_bagging"}) ||
                    api::is_sampled(params, {"neg_bagging_fraction", "neg_sub_row", "neg_subsample", "neg_bagging"}));
  const bool columns = api::is_sampled(params, {"feature_fraction", "sub_feature", "colsample_bytree"}) ||
                       api::is_sampled(params, {"feature_fraction_bynode", "sub_feature_bynode", "colsample_bynode"});
  std::vector<Dict> changes;
  Dict seeds;
  if (bags) {
    // LightGBM draws a bag in all rounds that are multiples of bagging_freq, counted from the start of the attempt, and
    // after a change of bagging_freq: then it uses the seed.
    changes.push_back({{"bagging_freq", every + 1}});
    seeds["bagging_freq"] = every;
    seeds["bagging_seed"] =
        api::seed_of_round(api::base_seed(params, {"bagging_seed", "bagging_fraction_seed"}, 3), round - round % every);
  }
  if (columns) {
    seeds["feature_fraction_seed"] = api::seed_of_round(api::base_seed(params, {"feature_fraction_seed"}, 2), round);
  }
  if (api::is_set(params, {"extra_trees", "extra_tree"})) {
    seeds["extra_seed"] = api::seed_of_round(api::base_seed(params, {"extra_seed"}, 6), round);
  }
  if (!seeds.empty()) changes.push_back(std::move(seeds));
  return changes;
}

bool lightgbm_continues(const Dict& params) {
  const std::string boosting = api::text_param(params, api::kBoosting);
  return boosting != "rf" && boosting != "random_forest";
}

}  // namespace trireme
