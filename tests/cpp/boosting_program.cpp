// Trains with trireme::boosting as a JSON file says, for tests/frameworks/test_boosting_cpp.py.
//   boosting_program JOB.json
// {"library": ..., "folder": ..., "name": ..., "params": {...}, "num_boost_round": ..., "workers": ..., "rows": ...,
//  "columns": {...}, "valid": {...}, other fields of BoostingOptions}. A dataset may be the path of a Parquet file.

#ifdef TRIREME_TEST_ARROW
#include <trireme/arrow/data.h>
#endif
#include <trireme/boosting/boosting.h>

#include <fstream>
#include <iostream>
#include <iterator>

#include "boosting/json_text.h"

namespace {

trireme::Dict job_of(const char* path) {
  std::ifstream file(path);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  return trireme::boosting::from_json(text).as_dict();
}

trireme::Dataset dataset_of(const trireme::Value& given) {
#ifdef TRIREME_TEST_ARROW
  if (const auto* path = given.get_if<std::string>()) return trireme::data::read_parquet(*path);
#endif
  return trireme::data::from_columns(given.as_dict());
}

std::optional<std::string> text_option(const trireme::Dict& job, const char* name) {
  const trireme::Value* value = job.find(name);
  return value == nullptr ? std::nullopt : std::optional(value->as_string());
}

trireme::boosting::BoostingOptions options_of(const trireme::Dict& job) {
  trireme::boosting::BoostingOptions options;
  options.params = job["params"].as_dict();
  options.num_boost_round = job["num_boost_round"].as_int();
  options.label_column = job["label_column"].as_string();
  options.weight_column = text_option(job, "weight_column");
  options.group_column = text_option(job, "group_column");
  options.library = job["path"].as_string();
  if (const auto* rounds = job.find("early_stopping_rounds")) options.early_stopping_rounds = rounds->as_int();
  if (const auto* memory = job.find("external_memory")) options.external_memory = memory->as_bool();
  if (const auto* train = job.find("evaluate_train")) options.evaluate_train = train->as_bool();
  if (const auto* names = job.find("categorical_columns")) {
    for (const auto& name : names->as_list()) options.categorical_columns.push_back(name.as_string());
  }
  for (const auto& [name, columns] : job["datasets"].as_dict()) {
    options.datasets.emplace(name, dataset_of(columns));
  }
  options.scaling.num_workers = {job["min_workers"].as_int(), job["max_workers"].as_int()};
  options.run = {.name = job["name"].as_string(), .storage_path = job["folder"].as_string()};
  options.run.failure_config.max_failures = 1;
  options.run.checkpoint_config.checkpoint_frequency = job["checkpoint_frequency"].as_int();
  return options;
}

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const trireme::Dict job = job_of(argv[1]);
  try {
    const auto options = options_of(job);
    const trireme::Result result = job["library"].as_string() == "xgboost"
                                       ? trireme::boosting::XgboostTrainer(options).fit()
                                       : trireme::boosting::LightgbmTrainer(options).fit();
    const trireme::Dict answer{{"checkpoint", result.checkpoint->path()}, {"metrics", *result.metrics}};
    std::cout << "\nRESULT " << trireme::boosting::to_json(answer) << "\n";
  } catch (const trireme::ConfigError& error) {
    std::cout << "\nREFUSED " << error.what() << "\n";
  }
}
