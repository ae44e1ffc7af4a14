#include <algorithm>
#include <array>
#include <cctype>
#include <cmath>

#include "base/config_fields.h"
#include "base/json.h"
#include "base/text.h"

namespace trireme {
namespace base {
namespace {

using Problem = std::optional<std::string>;

Problem bad_resources(const char* field, const std::optional<Resources>& resources) {
  if (!resources) return {};
  for (const auto& [name, amount] : *resources) {
    if (name.empty()) return fmt::format("{}: a resource has no name", field);
    if (!(amount >= 0) || !std::isfinite(amount)) {
      return fmt::format("{}[\"{}\"] = {}: must be a finite number of at least 0", field, name, base::amount(amount));
    }
    if (name == "GPU" && amount > 1 && amount != std::floor(amount)) {
      return fmt::format("{}[\"GPU\"] = {}: must be a fraction of one GPU (below 1) or an integer", field,
                         base::amount(amount));
    }
  }
  return {};
}

Problem below(const char* field, std::int64_t value, std::int64_t least, const char* meaning) {
  if (value >= least) return {};
  return fmt::format("{} = {}: must be at least {}{}", field, value, least, meaning);
}

template <typename... Checks>
Problem first_of(Checks&&... checks) {
  Problem found;
  ((found ? void() : void(found = std::forward<Checks>(checks))), ...);
  return found;
}

Problem prefixed(const char* name, Problem problem) {
  if (problem) return fmt::format("{}.{}", name, *problem);
  return {};
}

Problem one_of(const char* field, const std::string& value, const std::vector<std::string>& allowed) {
  if (std::find(allowed.begin(), allowed.end(), value) != allowed.end()) return {};
  return fmt::format("{} = '{}': must be one of {}{}", field, value, join(allowed, ", "), did_you_mean(value, allowed));
}

Problem workers_problem(const WorkerCount& count) {
  if (count.min == 0 && count.max == 0) return {};  // local mode
  if (!count.elastic()) {
    return below("num_workers", count.min, 0, " (0 runs the function in this process)");
  }
  if (count.min < 1) {
    return fmt::format("num_workers = ({}, {}): an elastic run needs at least 1 worker", count.min, count.max);
  }
  if (count.min > count.max) {
    return fmt::format("num_workers = ({}, {}): the minimum is above the maximum", count.min, count.max);
  }
  return {};
}

Problem negative(const char* name, double seconds) {
  if (seconds >= 0) return {};
  return fmt::format("{} = {}: must not be negative", name, seconds);
}

template <typename T>
void add_schema(Dict& schema, const char* name, const std::vector<std::pair<const char*, Dict>>& python_fields,
                const std::vector<std::string>& order) {
  const T standard{};
  std::map<std::string, Dict> by_name;
  Fields<T>::each([&](const char* field, auto member, const char* doc) {
    using Member = std::remove_cvref_t<decltype(standard.*member)>;
    by_name[field] = Dict{{"name", field},
                          {"type", Codec<Member>::kind()},
                          {"default", Codec<Member>::to(standard.*member)},
                          {"doc", doc},
                          {"python_only", false}};
  });
  for (const auto& [field, description] : python_fields) by_name[field] = description;
  List fields;
  for (const auto& field : order) fields.push_back(by_name.at(field));
  schema[name] = std::move(fields);
}

}  // namespace

Problem find_problem(const ScalingConfig& config) {
  double gpus = 0;
  if (config.resources_per_worker && config.resources_per_worker->contains("GPU")) {
    gpus = config.resources_per_worker->at("GPU");
  }
  Problem gpu_without_flag;
  if (gpus > 0 && !config.use_gpu) {
    gpu_without_flag = fmt::format("resources_per_worker[\"GPU\"] = {} without use_gpu: set use_gpu, or leave GPU out",
                                   base::amount(gpus));
  }
  Problem interval;
  if (!(config.elastic_resize_monitor_interval_s > 0)) {
    interval = fmt::format("elastic_resize_monitor_interval_s = {}: must be above 0",
                           config.elastic_resize_monitor_interval_s);
  }
  return prefixed(
      "ScalingConfig",
      first_of(workers_problem(config.num_workers), bad_resources("trainer_resources", config.trainer_resources),
               bad_resources("resources_per_worker", config.resources_per_worker), gpu_without_flag,
               one_of("placement_strategy", config.placement_strategy,
                      {kPlacementStrategies.begin(), kPlacementStrategies.end()}),
               interval));
}

Problem find_problem(const FailureConfig& config) {
  constexpr const char* kEndless = " (-1: unlimited)";
  Problem hang;
  if (config.hang_timeout_s && !(*config.hang_timeout_s > 0)) {
    hang = fmt::format("hang_timeout_s = {}: must be above 0, or no value to disable it", *config.hang_timeout_s);
  }
  return prefixed("FailureConfig",
                  first_of(below("max_failures", config.max_failures, -1, kEndless),
                           below("controller_failure_limit", config.controller_failure_limit, -1, kEndless),
                           below("max_preemption_failures", config.max_preemption_failures, -1, kEndless),
                           below("repeated_error_limit", config.repeated_error_limit, 0, " (0: disabled)"),
                           negative("cancel_timeout_s", config.cancel_timeout_s),
                           negative("restart_backoff_s", config.restart_backoff_s),
                           negative("max_restart_backoff_s", config.max_restart_backoff_s),
                           negative("preemption_grace_s", config.preemption_grace_s), hang,
                           one_of("on_hang", config.on_hang, {"warn", "restart", "fail"})));
}

Problem find_problem(const CheckpointConfig& config) {
  Problem keep;
  if (config.num_to_keep) keep = below("num_to_keep", *config.num_to_keep, 1, " (no value keeps all)");
  return prefixed("CheckpointConfig",
                  first_of(keep, one_of("checkpoint_score_order", config.checkpoint_score_order, {"max", "min"}),
                           below("checkpoint_frequency", config.checkpoint_frequency, 0, ""),
                           below("max_uploads_in_flight", config.max_uploads_in_flight, 1, "")));
}

Problem find_problem(const LoggingConfig& config) {
  std::string upper = config.log_level;
  std::transform(upper.begin(), upper.end(), upper.begin(), [](unsigned char c) { return std::toupper(c); });
  return prefixed("LoggingConfig", one_of("log_level", upper, {"DEBUG", "INFO", "WARNING", "ERROR", "CRITICAL"}));
}

Problem find_problem(const DataConfig& config) {
  const Value& split = config.datasets_to_split;
  const auto* text = split.get_if<std::string>();
  const auto* list = split.get_if<List>();
  bool names = list && std::all_of(list->begin(), list->end(), [](const Value& v) { return v.get_if<std::string>(); });
  Problem which, budget, shards, threads;
  if (!(text && *text == "all") && !names) which = "datasets_to_split: must be 'all' or a list of dataset names";
  if (auto bytes = memory_budget_of(config); !bytes) budget = bytes.error().message();
  if (config.virtual_shards) shards = below("virtual_shards", *config.virtual_shards, 1, "");
  if (config.num_threads) threads = below("num_threads", *config.num_threads, 1, "");
  return prefixed("DataConfig", first_of(which, budget, shards, threads));
}

Result<std::optional<std::int64_t>> memory_budget_of(const DataConfig& config) {
  constexpr std::int64_t kLeast = std::int64_t{1} << 20;
  if (config.memory_budget.is_null()) return std::optional<std::int64_t>();
  std::optional<std::int64_t> bytes;
  if (const auto* text = config.memory_budget.get_if<std::string>()) bytes = parse_bytes(*text);
  if (const auto* number = config.memory_budget.get_if<std::int64_t>()) bytes = *number;
  const std::string written = to_json(config.memory_budget);
  if (!bytes)
    return error("memory_budget = {}: must be a number of bytes or a string such as '1GB' or '512MiB'", written);
  if (*bytes < kLeast) return error("memory_budget = {}: must be at least 1MiB", written);
  return bytes;
}

Problem find_problem(const RunConfig& config) {
  Problem name;
  if (config.name &&
      (config.name->empty() || config.name->find('/') != std::string::npos || config.name->front() == '.')) {
    name =
        fmt::format("name = '{}': must be a plain folder name, without '/' and not starting with a dot", *config.name);
  }
  Problem path;
  if (config.storage_path && config.storage_path->empty()) path = "storage_path is empty: omit it to use the default";
  Problem times;
  if (!(config.start_timeout_s > 0))
    times = fmt::format("start_timeout_s = {}: must be above 0", config.start_timeout_s);
  if (!(config.stop_grace_s >= 0)) times = fmt::format("stop_grace_s = {}: must not be negative", config.stop_grace_s);
  return first_of(
      prefixed("RunConfig", first_of(name, path, one_of("resume", config.resume, {"auto", "never", "must"}), times)),
      find_problem(config.failure_config), find_problem(config.checkpoint_config), find_problem(config.logging_config));
}

Problem find_problem(const IterBatchesOptions& options) {
  const auto given_below = [](const char* field, const std::optional<std::int64_t>& value, std::int64_t least) {
    return value ? below(field, *value, least, "") : Problem();
  };
  return prefixed("IterBatchesOptions",
                  first_of(below("batch_size", options.batch_size, 1, ""),
                           given_below("global_batch_size", options.global_batch_size, 1),
                           below("prefetch_batches", options.prefetch_batches, 0, ""),
                           given_below("local_shuffle_buffer_size", options.local_shuffle_buffer_size, 1),
                           given_below("local_shuffle_seed", options.local_shuffle_seed, 0)));
}

Result<Dict> check_config(const std::string& name, const Dict& fields) {
#define TRIREME_CHECK_ONE(Type)                                      \
  if (name == #Type) {                                               \
    TRIREME_ASSIGN(auto config, checked_config<Type>(fields, name)); \
    return to_dict(config);                                          \
  }
  TRIREME_CHECK_ONE(ScalingConfig)
  TRIREME_CHECK_ONE(FailureConfig)
  TRIREME_CHECK_ONE(CheckpointConfig)
  TRIREME_CHECK_ONE(LoggingConfig)
  TRIREME_CHECK_ONE(DataConfig)
  TRIREME_CHECK_ONE(RunConfig)
  TRIREME_CHECK_ONE(IterBatchesOptions)
#undef TRIREME_CHECK_ONE
  return error("no configuration named '{}'", name);
}

Dict config_schema() {
  Dict schema;
#define TRIREME_ORDER(type, name, standard, doc) order.emplace_back(#name);
#define TRIREME_ORDER_PYTHON(type, name, doc) \
  order.emplace_back(#name);                  \
  python_fields.emplace_back(                 \
      #name, Dict{{"name", #name}, {"type", type}, {"default", Value()}, {"doc", doc}, {"python_only", true}});
#define TRIREME_ADD_SCHEMA(Type, TABLE)                      \
  {                                                          \
    std::vector<std::string> order;                          \
    std::vector<std::pair<const char*, Dict>> python_fields; \
    TABLE(TRIREME_ORDER, TRIREME_ORDER_PYTHON)               \
    add_schema<Type>(schema, #Type, python_fields, order);   \
  }
  TRIREME_ADD_SCHEMA(ScalingConfig, TRIREME_SCALING_CONFIG)
  TRIREME_ADD_SCHEMA(FailureConfig, TRIREME_FAILURE_CONFIG)
  TRIREME_ADD_SCHEMA(CheckpointConfig, TRIREME_CHECKPOINT_CONFIG)
  TRIREME_ADD_SCHEMA(LoggingConfig, TRIREME_LOGGING_CONFIG)
  TRIREME_ADD_SCHEMA(DataConfig, TRIREME_DATA_CONFIG)
  TRIREME_ADD_SCHEMA(RunConfig, TRIREME_RUN_CONFIG)
  TRIREME_ADD_SCHEMA(IterBatchesOptions, TRIREME_ITER_BATCHES_OPTIONS)
#undef TRIREME_ADD_SCHEMA
#undef TRIREME_ORDER_PYTHON
#undef TRIREME_ORDER
  return schema;
}

}  // namespace base

namespace {

template <typename T>
void throw_on_problem(const T& config) {
  if (auto problem = base::find_problem(config)) throw ConfigError(*problem);
}

}  // namespace

void validate(const ScalingConfig& config) { throw_on_problem(config); }
void validate(const FailureConfig& config) { throw_on_problem(config); }
void validate(const CheckpointConfig& config) { throw_on_problem(config); }
void validate(const LoggingConfig& config) { throw_on_problem(config); }
void validate(const DataConfig& config) { throw_on_problem(config); }
void validate(const RunConfig& config) { throw_on_problem(config); }

}  // namespace trireme
