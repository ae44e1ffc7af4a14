#pragma once

#include <array>

#include "base/fields.h"
#include "trireme/config.h"
#include "trireme/iter_batches_options.h"

// The tables of include/trireme/config.h and iter_batches_options.h as Fields<>, and the schema that Python and the
// docs derive from them.

namespace trireme::base {

// The values of ScalingConfig.placement_strategy, in the order of engine::Strategy.
inline constexpr std::array<const char*, 4> kPlacementStrategies = {"PACK", "SPREAD", "STRICT_PACK", "STRICT_SPREAD"};

// "int" or "(min, max)".
template <>
struct Codec<WorkerCount> {
  static std::string kind() { return "int | tuple[int, int]"; }
  static Value to(const WorkerCount& count) {
    if (!count.elastic()) return count.min;
    return List{count.min, count.max};
  }
  static Result<WorkerCount> from(const Value& value) {
    if (const auto* number = value.get_if<std::int64_t>()) return WorkerCount(*number);
    const auto* pair = value.get_if<List>();
    if (pair && pair->size() == 2 && (*pair)[0].get_if<std::int64_t>() && (*pair)[1].get_if<std::int64_t>()) {
      return WorkerCount((*pair)[0].as_int(), (*pair)[1].as_int());
    }
    return error("expected {}, got {}", kind(), value.type_name());
  }
};

template <>
struct Codec<WarmRestart> {
  static std::string kind() { return "bool | Literal['auto']"; }
  static Value to(const WarmRestart& warm) { return warm.always ? Value(*warm.always) : Value("auto"); }
  static Result<WarmRestart> from(const Value& value) {
    if (const auto* always = value.get_if<bool>()) return WarmRestart(*always);
    if (value == Value("auto")) return WarmRestart();
    const auto* text = value.get_if<std::string>();
    return error("expected {}, got {}", kind(), text ? fmt::format("'{}'", *text) : value.type_name());
  }
};

#define TRIREME_CONFIG_VISIT(type, name, standard, doc) visit(#name, &Self::name, doc);
#define TRIREME_CONFIG_SKIP(type, name, doc)
#define TRIREME_CONFIG_FIELDS(Name, TABLE)             \
  template <>                                          \
  struct Fields<Name> {                                \
    using Self = Name;                                 \
    static constexpr const char* type_name = #Name;    \
    template <typename Visitor>                        \
    static void each(Visitor&& visit) {                \
      TABLE(TRIREME_CONFIG_VISIT, TRIREME_CONFIG_SKIP) \
    }                                                  \
  };
TRIREME_CONFIG_FIELDS(ScalingConfig, TRIREME_SCALING_CONFIG)
TRIREME_CONFIG_FIELDS(FailureConfig, TRIREME_FAILURE_CONFIG)
TRIREME_CONFIG_FIELDS(CheckpointConfig, TRIREME_CHECKPOINT_CONFIG)
TRIREME_CONFIG_FIELDS(LoggingConfig, TRIREME_LOGGING_CONFIG)
TRIREME_CONFIG_FIELDS(DataConfig, TRIREME_DATA_CONFIG)
TRIREME_CONFIG_FIELDS(RunConfig, TRIREME_RUN_CONFIG)
TRIREME_CONFIG_FIELDS(IterBatchesOptions, TRIREME_ITER_BATCHES_OPTIONS)
#undef TRIREME_CONFIG_FIELDS
#undef TRIREME_CONFIG_SKIP
#undef TRIREME_CONFIG_VISIT

// The problem with the values as a sentence; nullopt if there is none.
std::optional<std::string> find_problem(const ScalingConfig& config);
std::optional<std::string> find_problem(const FailureConfig& config);
std::optional<std::string> find_problem(const CheckpointConfig& config);
std::optional<std::string> find_problem(const LoggingConfig& config);
std::optional<std::string> find_problem(const DataConfig& config);
std::optional<std::string> find_problem(const RunConfig& config);
std::optional<std::string> find_problem(const IterBatchesOptions& options);

// In bytes; nullopt: not set.
Result<std::optional<std::int64_t>> memory_budget_of(const DataConfig& config);

// Checks a configuration from a dict: first the type of each field, then the values. The error names the field.
template <typename T>
Result<T> checked_config(const Dict& fields, std::string_view name) {
  TRIREME_ASSIGN(auto config, from_dict<T>(fields, name));
  if (auto problem = find_problem(config)) return Error(*std::move(problem));
  return config;
}

// By name, for Python. Returns all fields, normalised.
Result<Dict> check_config(const std::string& name, const Dict& fields);

// name -> list of {name, type, default, doc, python_only}, in the order of the tables.
Dict config_schema();

}  // namespace trireme::base
