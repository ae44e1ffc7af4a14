#include <doctest/doctest.h>

#include <limits>

#include "base/config_fields.h"

namespace config_test {

using namespace trireme;
using namespace trireme::base;

namespace {

struct Row {
  const char* config;
  Dict fields;
  const char* says;  // "": valid
};

const double kNan = std::numeric_limits<double>::quiet_NaN();
const double kInfinity = std::numeric_limits<double>::infinity();

}  // namespace

TEST_CASE("configurations accept valid values and reject others") {
  const std::vector<Row> rows = {
      {"ScalingConfig", {}, ""},
      {"ScalingConfig", {{"num_workers", 0}}, ""},
      {"ScalingConfig", {{"num_workers", 10000}}, ""},
      {"ScalingConfig", {{"num_workers", List{2, 8}}}, ""},
      {"ScalingConfig", {{"num_workers", -1}}, "ScalingConfig.num_workers = -1: must be at least 0"},
      {"ScalingConfig", {{"num_workers", List{0, 2}}}, "an elastic run needs at least 1 worker"},
      {"ScalingConfig", {{"num_workers", List{4, 2}}}, "num_workers = (4, 2): the minimum is above the maximum"},
      {"ScalingConfig", {{"num_workers", "4"}}, "ScalingConfig.num_workers: expected int | tuple[int, int], got str"},
      {"ScalingConfig", {{"num_workers", 2.0}}, "expected int | tuple[int, int], got float"},
      {"ScalingConfig", {{"num_workers", List{1}}}, "expected int | tuple[int, int], got list"},
      {"ScalingConfig", {{"num_wokers", 2}}, "ScalingConfig has no field 'num_wokers'; did you mean 'num_workers'?"},
      {"ScalingConfig", {{"use_gpu", 1}}, "ScalingConfig.use_gpu: expected bool, got int"},
      {"ScalingConfig", {{"placement_strategy", "PACKS"}}, "placement_strategy = 'PACKS': must be one of PACK"},
      {"ScalingConfig", {{"resources_per_worker", Dict{{"CPU", 0.5}, {"license", 1}}}}, ""},
      {"ScalingConfig",
       {{"resources_per_worker", Dict{{"CPU", -1}}}},
       "resources_per_worker[\"CPU\"] = -1: must be a finite number"},
      {"ScalingConfig", {{"resources_per_worker", Dict{{"CPU", kNan}}}}, "must be a finite number of at least 0"},
      {"ScalingConfig", {{"resources_per_worker", Dict{{"CPU", kInfinity}}}}, "must be a finite number of at least 0"},
      {"ScalingConfig", {{"resources_per_worker", Dict{{"", 1}}}}, "a resource has no name"},
      {"ScalingConfig",
       {{"resources_per_worker", Dict{{"CPU", "two"}}}},
       "ScalingConfig.resources_per_worker: 'CPU': expected float"},
      {"ScalingConfig", {{"resources_per_worker", Dict{{"GPU", 1}}}}, "without use_gpu: set use_gpu, or leave GPU out"},
      {"ScalingConfig", {{"use_gpu", true}, {"resources_per_worker", Dict{{"GPU", 0.5}}}}, ""},
      {"ScalingConfig",
       {{"use_gpu", true}, {"resources_per_worker", Dict{{"GPU", 1.5}}}},
       "must be a fraction of one GPU (below 1) or an integer"},
      {"ScalingConfig", {{"trainer_resources", Dict{{"CPU", -2}}}}, "trainer_resources[\"CPU\"] = -2"},
      {"ScalingConfig", {{"elastic_resize_monitor_interval_s", 0}}, "must be above 0"},
      {"ScalingConfig", {{"elastic_resize_monitor_interval_s", kNan}}, "must be above 0"},
      {"FailureConfig", {{"max_failures", -1}}, ""},
      {"FailureConfig", {{"max_failures", -2}}, "FailureConfig.max_failures = -2: must be at least -1 (-1: unlimited)"},
      {"FailureConfig", {{"controller_failure_limit", -5}}, "FailureConfig.controller_failure_limit = -5"},
      {"FailureConfig", {{"max_preemption_failures", -5}}, "FailureConfig.max_preemption_failures = -5"},
      {"CheckpointConfig", {{"num_to_keep", nullptr}}, ""},
      {"CheckpointConfig", {{"num_to_keep", 1}}, ""},
      {"CheckpointConfig",
       {{"num_to_keep", 0}},
       "CheckpointConfig.num_to_keep = 0: must be at least 1 (no value keeps all)"},
      {"CheckpointConfig", {{"checkpoint_score_order", "mx"}}, "did you mean 'max'?"},
      {"CheckpointConfig", {{"checkpoint_frequency", -1}}, "checkpoint_frequency = -1"},
      {"CheckpointConfig", {{"max_uploads_in_flight", 1}, {"keep_in_memory", true}, {"verify_on_resume", false}}, ""},
      {"CheckpointConfig", {{"max_uploads_in_flight", 0}}, "max_uploads_in_flight = 0: must be at least 1"},
      {"LoggingConfig", {{"log_level", "debug"}}, ""},
      {"LoggingConfig", {{"log_level", "LOUD"}}, "LoggingConfig.log_level = 'LOUD'"},
      {"DataConfig", {{"datasets_to_split", List{"train"}}}, ""},
      {"DataConfig", {{"datasets_to_split", "train"}}, "must be 'all' or a list of dataset names"},
      {"DataConfig", {{"datasets_to_split", List{1}}}, "must be 'all' or a list of dataset names"},
      {"RunConfig", {{"name", "digits"}, {"storage_path", "/tmp/x"}}, ""},
      {"RunConfig", {{"name", ""}}, "RunConfig.name = '': must be a plain folder name"},
      {"RunConfig", {{"name", "a/b"}}, "RunConfig.name = 'a/b'"},
      {"RunConfig", {{"name", ".."}}, "RunConfig.name = '..'"},
      {"RunConfig", {{"storage_path", ""}}, "storage_path is empty"},
      {"RunConfig", {{"resume", "must"}}, ""},
      {"RunConfig", {{"resume", "allways"}}, "RunConfig.resume = 'allways'"},
      {"RunConfig", {{"resume", "nevr"}}, "did you mean 'never'?"},
      {"RunConfig", {{"start_timeout_s", 0}}, "start_timeout_s = 0: must be above 0"},
      {"RunConfig", {{"stop_grace_s", 0}}, ""},
      {"RunConfig", {{"stop_grace_s", -1}}, "stop_grace_s = -1: must not be negative"},
      {"RunConfig", {{"stop_grace_s", kNan}}, "must not be negative"},
      {"IterBatchesOptions", {{"batch_size", 0}}, "IterBatchesOptions.batch_size = 0: must be at least 1"},
      {"IterBatchesOptions", {{"batch_size", 1.5}}, "IterBatchesOptions.batch_size: expected int, got float"},
      {"IterBatchesOptions", {{"global_batch_size", 0}}, "global_batch_size = 0: must be at least 1"},
      {"IterBatchesOptions", {{"prefetch_batches", -1}}, "prefetch_batches = -1: must be at least 0"},
      {"IterBatchesOptions", {{"local_shuffle_buffer_size", 0}}, "local_shuffle_buffer_size = 0: must be at least 1"},
      {"IterBatchesOptions", {{"local_shuffle_seed", -1}}, "local_shuffle_seed = -1: must be at least 0"},
      {"IterBatchesOptions", {{"batchsize", 8}}, "did you mean 'batch_size'?"},
      {"RunConfig", {{"failure_config", Dict{{"max_failures", 3}}}}, ""},
      {"RunConfig", {{"failure_config", Dict{{"max_failures", -3}}}}, "FailureConfig.max_failures = -3"},
      {"RunConfig", {{"failure_config", Dict{{"max_failure", 3}}}}, "did you mean 'max_failures'?"},
      {"RunConfig", {{"failure_config", 3}}, "RunConfig.failure_config: expected FailureConfig, got int"},
      {"RunConfig", {{"preload", List{"torch", 1}}}, "RunConfig.preload: element 1: expected str, got int"},
      {"NoConfig", {}, "no configuration named 'NoConfig'"},
  };
  for (const auto& row : rows) {
    CAPTURE(row.config);
    CAPTURE(row.says);
    auto checked = check_config(row.config, row.fields);
    const std::string message = checked ? "" : checked.error().message();
    CAPTURE(message);
    CHECK(checked.ok() == std::string(row.says).empty());
    CHECK(message.find(row.says) != std::string::npos);
  }
}

TEST_CASE("checking a configuration completes it and is idempotent") {
  for (const char* name : {"ScalingConfig", "FailureConfig", "CheckpointConfig", "LoggingConfig", "DataConfig",
                           "RunConfig", "IterBatchesOptions"}) {
    CAPTURE(name);
    auto once = check_config(name, {});
    REQUIRE(once);
    auto twice = check_config(name, *once);
    REQUIRE(twice);
    CHECK(*once == *twice);
    // The schema has the same fields, plus those that only Python has.
    std::size_t fields = 0;
    const Dict schema = config_schema();
    for (const auto& field : schema[name].as_list()) {
      if (field["python_only"].as_bool()) continue;
      ++fields;
      CHECK(once->contains(field["name"].as_string()));
      CHECK((*once)[field["name"].as_string()] == field["default"]);
      CHECK_FALSE(field["doc"].as_string().empty());
    }
    CHECK(fields == once->size());
  }
  auto elastic = check_config("ScalingConfig", {{"num_workers", List{1, 4}}});
  CHECK((*elastic)["num_workers"] == Value(List{1, 4}));
  auto fixed = check_config("ScalingConfig", {{"num_workers", List{3, 3}}});
  CHECK((*fixed)["num_workers"] == Value(3));
}

TEST_CASE("C++ programs get the same errors as exceptions") {
  CHECK_NOTHROW(validate(ScalingConfig{}));
  CHECK_NOTHROW(validate(RunConfig{}));
  CHECK_NOTHROW(validate(DataConfig{}));
  ScalingConfig scaling;
  scaling.num_workers = -4;
  CHECK_THROWS_AS(validate(scaling), ConfigError);
  RunConfig run;
  run.failure_config.max_failures = -4;
  CHECK_THROWS_AS(validate(run), ConfigError);
  CHECK_THROWS_AS(validate(run.failure_config), ConfigError);
  run = {};
  run.checkpoint_config.num_to_keep = 0;
  CHECK_THROWS_AS(validate(run), ConfigError);
  CHECK_THROWS_AS(validate(run.checkpoint_config), ConfigError);
  run = {};
  run.logging_config.log_level = "x";
  CHECK_THROWS_AS(validate(run), ConfigError);
  CHECK_THROWS_AS(validate(run.logging_config), ConfigError);
}

}  // namespace config_test
