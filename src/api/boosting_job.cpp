#include "trireme/boosting_job.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>

#include "api/boosting_params.h"
#include "api/train_session.h"
#include "base/json.h"
#include "checkpoint/scratch_folder.h"
#include "trireme/config.h"

namespace trireme {
namespace api {
namespace {

const Dict& columns_of_dataset(const Value& dataset) { return dataset.as_dict().at("columns").as_dict(); }

std::string quoted_names(const Dict& columns) {
  std::vector<std::string> names;
  for (const auto& [name, kind] : columns) names.push_back(fmt::format("{:?}", name));
  return fmt::format("{}", fmt::join(names, ", "));
}

void check_rounds(const Value& rounds) {
  if (!rounds.get_if<std::int64_t>() || rounds.as_int() < 1) {
    throw ConfigError(fmt::format("num_boost_round = {}: expected an int, 1 or more", base::to_json(rounds)));
  }
}

void check_column(const std::string& dataset, const Dict& columns, const char* option, const std::string& column) {
  if (column.empty()) return;
  if (columns.find(column) == nullptr) {
    throw ConfigError(fmt::format("{} = {:?}: datasets[{:?}] has no such column; it has {}", option, column, dataset,
                                  quoted_names(columns)));
  }
}

void check_number(const std::string& dataset, const Dict& columns, const char* option, const std::string& column) {
  if (column.empty()) return;
  const std::string& kind = columns.find(column)->as_string();
  if (kind != "number") {
    throw ConfigError(
        fmt::format("{} = {:?}: the column of datasets[{:?}] must be numeric and is {}; encode it, for "
                    "example with the preprocessor LabelEncoder",
                    option, column, dataset, kind));
  }
}

bool is_key_column(const std::string& kind) { return kind == "number" || kind == "string" || kind == "category"; }

void check_group(const std::string& dataset, const Dict& columns, const std::string& column) {
  if (column.empty()) return;
  if (const std::string& kind = columns.find(column)->as_string(); !is_key_column(kind)) {
    throw ConfigError(
        fmt::format("group_column = {:?}: the column of datasets[{:?}] must contain strings or integers and is {}",
                    column, dataset, kind));
  }
}

// The columns, with the kind "category" for those that the user calls categorical.
Dict with_categories(const BoostingJob& job, const std::string& dataset, const Dict& columns) {
  Dict made = columns;
  for (const auto& column : job.categorical_columns) {
    check_column(dataset, columns, "categorical_columns", column);
    if (column == job.label_column || column == job.weight_column || column == job.group_column) {
      throw ConfigError(fmt::format("categorical_columns: {:?} is no feature, but label, weight or group", column));
    }
    if (const std::string& kind = columns.find(column)->as_string(); !is_key_column(kind)) {
      throw ConfigError(
          fmt::format("categorical_columns: column {:?} of datasets[{:?}] must contain strings or integers and is {}",
                      column, dataset, kind));
    }
    made[column] = "category";
  }
  return made;
}

void check_options(const BoostingJob& job) {
  if (!job.early_stopping_rounds.is_null()) {
    const Value& rounds = job.early_stopping_rounds;
    if (!rounds.get_if<std::int64_t>() || rounds.as_int() < 1) {
      throw ConfigError(fmt::format("early_stopping_rounds = {}: expected an int, 1 or more", base::to_json(rounds)));
    }
    if (job.datasets.size() < 2) {
      throw ConfigError(fmt::format("early_stopping_rounds needs a dataset besides {:?} to evaluate", job.train));
    }
  }
  if (job.external_memory && job.library != "xgboost") {
    throw ConfigError("external_memory: only XGBoost can train on rows in files");
  }
  if (job.library == "xgboost" && !job.group_column.empty() && !job.weight_column.empty()) {
    throw ConfigError(
        fmt::format("weight_column = {:?}: XGBoost's ranking has no weights of rows; remove it, or use LightGBM",
                    job.weight_column));
  }
}

void check_feature(const std::string& dataset, const std::string& column, const std::string& kind) {
  if (column.empty()) throw ConfigError(fmt::format("datasets[{:?}] has a column without a name", dataset));
  if (kind == "number" || kind == "category") return;
  if (kind == "string") {
    throw ConfigError(fmt::format(
        "column {:?} of datasets[{:?}] contains strings, which trees cannot split: name it in categorical_columns, "
        "make it categorical with the preprocessor Categorizer (or an Arrow dictionary), encode it, or drop it",
        column, dataset));
  }
  throw ConfigError(
      fmt::format("column {:?} of datasets[{:?}] has the type {}, which is not a feature: convert it to numbers, or "
                  "drop it",
                  column, dataset, kind));
}

// XGBoost and LightGBM refuse these in the middle of the start.
void check_feature_name(const BoostingJob& job, const std::string& column) {
  const std::string refused = job.library == "xgboost" ? "[]<" : "\",:[]{}";
  if (column.find_first_of(refused) != std::string::npos) {
    throw ConfigError(
        fmt::format("column {:?}: the names of features must not contain any of {}; rename it with "
                    "rename_columns()",
                    column, refused));
  }
}

std::vector<std::string> features_of_job(const BoostingJob& job, const Dict& columns) {
  std::vector<std::string> features;
  for (const auto& [name, kind] : columns) {
    if (name != job.label_column && name != job.weight_column && name != job.group_column) features.push_back(name);
  }
  return features;
}

void check_evaluation(const BoostingJob& job, const std::string& dataset, const Dict& columns, const Dict& train,
                      const std::vector<std::string>& features) {
  for (const auto& feature : features) {
    const Value* kind = columns.find(feature);
    if (kind == nullptr) {
      throw ConfigError(fmt::format("datasets[{:?}] has no column {:?}, which datasets[{:?}] has; it has {}", dataset,
                                    feature, job.train, quoted_names(columns)));
    }
    if (kind->as_string() != train.find(feature)->as_string()) {
      throw ConfigError(fmt::format("column {:?} is {} in datasets[{:?}] and {} in datasets[{:?}]", feature,
                                    train.find(feature)->as_string(), job.train, kind->as_string(), dataset));
    }
  }
}

// LightGBM evaluates on complete datasets; XGBoost on the parts of the workers.
bool is_divided_dataset(const BoostingJob& job, const std::string& dataset) {
  return job.library == "xgboost" || dataset == job.train;
}

void check_dataset_rows(const BoostingJob& job, const std::string& dataset, std::int64_t rows) {
  if (rows == 0) throw ConfigError(fmt::format("datasets[{:?}] has no rows", dataset));
  if (is_divided_dataset(job, dataset) && rows < job.max_workers) {
    throw ConfigError(fmt::format(
        "datasets[{:?}] has {} row{} for {} workers: a worker would have none; use fewer workers or more rows", dataset,
        rows, rows == 1 ? "" : "s", job.max_workers));
  }
}

void check_dataset_groups(const BoostingJob& job, const std::string& dataset, const Value* groups) {
  if (groups == nullptr || !is_divided_dataset(job, dataset) || groups->as_int() >= job.max_workers) return;
  throw ConfigError(fmt::format(
      "group_column = {:?}: datasets[{:?}] has {} query group{} for {} workers: a worker would have none; use fewer "
      "workers or more groups",
      job.group_column, dataset, groups->as_int(), groups->as_int() == 1 ? "" : "s", job.max_workers));
}

}  // namespace
}  // namespace api

TemporaryFolder::TemporaryFolder() {
  auto made = std::make_shared<checkpoint::ScratchFolder>(api::value_or_throw(checkpoint::ScratchFolder::make()));
  path_ = made->path();
  folder_ = std::move(made);
}

CheckedBoostingJob check_boosting_job(const BoostingJob& job) {
  api::check_rounds(job.num_boost_round);
  if (job.label_column.empty()) {
    throw ConfigError("label_column is missing: the name of the column to predict");
  }
  const Value* train = job.datasets.find(job.train);
  if (train == nullptr) {
    throw ConfigError(
        fmt::format("datasets has no {0:?}{1}: pass datasets={{{0:?}: ...}}; all others are "
                    "evaluated under their names",
                    job.train, job.datasets.empty() ? "" : ", only " + api::quoted_names(job.datasets)));
  }
  api::check_options(job);
  const Dict trained = api::with_categories(job, job.train, api::columns_of_dataset(*train));
  CheckedBoostingJob checked{job.params, {}, api::features_of_job(job, trained), {}, {}};
  for (const auto& [name, dataset] : job.datasets) {
    if (name.find('-') != std::string::npos) {  // separates it from the metric: "valid-logloss"
      throw ConfigError(fmt::format("datasets[{:?}]: the name must not contain '-'", name));
    }
    const Dict columns = api::with_categories(job, name, api::columns_of_dataset(dataset));
    for (const auto& [option, column] : {std::pair{"label_column", job.label_column},
                                         {"weight_column", job.weight_column},
                                         {"group_column", job.group_column}}) {
      api::check_column(name, columns, option, column);
    }
    api::check_number(name, columns, "label_column", job.label_column);
    api::check_number(name, columns, "weight_column", job.weight_column);
    api::check_group(name, columns, job.group_column);
    if (name != job.train) api::check_evaluation(job, name, columns, trained, checked.features);
    api::check_dataset_rows(job, name, dataset.as_dict().at("rows").as_int());
    api::check_dataset_groups(job, name, dataset.as_dict().find("groups"));
  }
  if (checked.features.empty()) {
    throw ConfigError(
        fmt::format("datasets[{:?}] has no features: all of its columns are label, weight or group", job.train));
  }
  for (const auto& feature : checked.features) {
    const std::string& kind = trained.find(feature)->as_string();
    api::check_feature(job.train, feature, kind);
    api::check_feature_name(job, feature);
    if (kind == "category") checked.categorical.push_back(feature);
  }
  (job.library == "xgboost" ? api::check_xgboost_params : api::check_lightgbm_params)(job, checked);
  return checked;
}

}  // namespace trireme
