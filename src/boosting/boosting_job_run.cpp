#include "boosting/boosting_job_run.h"

#include <algorithm>
#include <cstdio>
#include <set>
#include <string_view>
#include <variant>

#include "boosting/column_reader.h"
#include "trireme/boosting_job.h"

namespace trireme::boosting {
namespace {

std::vector<std::string> strings_of(const Value& list) {
  std::vector<std::string> made;
  for (const auto& each : list.as_list()) made.push_back(each.as_string());
  return made;
}

// "number", "string", "category" or the name of another type, from the text of a column's type.
std::string kind_of(const std::string& type) {
  if (type.starts_with("dictionary")) return "category";
  for (const char* number : {"bool", "int", "uint", "halffloat", "float", "double", "decimal"}) {
    if (type.starts_with(number)) return "number";
  }
  if (type == "string" || type == "utf8" || type == "large_string" || type == "large_utf8") return "string";
  return type;
}

// As BoostingJob has it.
Dict described(const Dataset& dataset) {
  Dict columns;
  const std::string schema = dataset.schema();
  std::size_t begin = 0;
  while (begin < schema.size()) {
    const std::size_t end = std::min(schema.find('\n', begin), schema.size());
    const std::string line = schema.substr(begin, end - begin);
    const std::size_t colon = line.rfind(": ");
    columns[line.substr(0, colon)] = kind_of(line.substr(colon + 2));
    begin = end + 1;
  }
  return {{"rows", dataset.count()}, {"columns", std::move(columns)}};
}

// Reads the group column until there is a group for every worker, usually a batch.
std::int64_t count_groups(const Dataset& dataset, const std::string& column, int enough) {
  std::set<std::string> found;
  for (const Batch& batch : dataset.select_columns({column}).iter_batches({.batch_size = kBatchRows})) {
    ExportedBatch(batch).read_keys(column, [&found](std::int64_t, const ExportedBatch::Key& key) {
      if (const auto* text = std::get_if<std::string_view>(&key)) {
        found.emplace(*text);
      } else if (const auto* number = std::get_if<std::int64_t>(&key)) {
        found.insert(std::to_string(*number));
      }
    });
    if (static_cast<int>(found.size()) >= enough) break;
  }
  return static_cast<std::int64_t>(found.size());
}

Config checked_config(const std::string& library, const BoostingOptions& options) {
  validate(options.scaling);
  validate(options.run);
  BoostingJob job{
      .library = library,
      .params = options.params,
      .num_boost_round = options.num_boost_round,
      .label_column = options.label_column,
      .weight_column = options.weight_column.value_or(""),
      .group_column = options.group_column.value_or(""),
      .categorical_columns = options.categorical_columns,
      .early_stopping_rounds = options.early_stopping_rounds ? Value(*options.early_stopping_rounds) : Value(),
      .external_memory = options.external_memory,
      .min_workers = static_cast<int>(std::max<std::int64_t>(options.scaling.num_workers.min, 1)),
      .max_workers = static_cast<int>(std::max<std::int64_t>(options.scaling.num_workers.max, 1)),
      .use_gpu = options.scaling.use_gpu};
  const Resources resources = options.scaling.resources_per_worker.value_or(Resources());
  if (const auto cpus = resources.find("CPU"); cpus != resources.end()) job.cpus_per_worker = cpus->second;
  List names;
  for (const auto& [name, dataset] : options.datasets) {
    Dict description = described(dataset);
    const Value* kind = description["columns"].as_dict().find(job.group_column);
    if (kind != nullptr && job.max_workers > 1) {
      description["groups"] = count_groups(dataset, job.group_column, job.max_workers);
    }
    job.datasets[name] = std::move(description);
    names.emplace_back(name);
  }
  const CheckedBoostingJob made = check_boosting_job(job);
  for (const auto& line : made.corrections) std::fprintf(stderr, "trireme: warning: %s\n", line.c_str());
  const auto& checkpoints = options.run.checkpoint_config;
  return {{"library", options.library.value_or("")},
          {"params", made.params},
          {"features", List(made.features.begin(), made.features.end())},
          {"categorical", List(made.categorical.begin(), made.categorical.end())},
          {"unrepeatable", List(made.unrepeatable.begin(), made.unrepeatable.end())},
          {"label_column", job.label_column},
          {"weight_column", job.weight_column},
          {"group_column", job.group_column},
          {"num_boost_round", options.num_boost_round},
          {"early_stopping_rounds", options.early_stopping_rounds.value_or(0)},
          {"external_memory", options.external_memory},
          {"evaluate_train", options.evaluate_train},
          {"datasets", std::move(names)},
          {"checkpoint_frequency", checkpoints.checkpoint_frequency},
          {"checkpoint_at_end", checkpoints.checkpoint_at_end.value_or(true)}};
}

// Which datasets are divided: with groups none, because every worker looks for its own; LightGBM evaluates complete
// datasets, because it does not combine the metrics of workers.
DataConfig divided(const std::string& library, const BoostingOptions& options) {
  const bool grouped = options.group_column.has_value();
  if (!grouped && library == "xgboost") return options.dataset_config;
  DataConfig config = options.dataset_config;
  const auto* listed = config.datasets_to_split.get_if<List>();
  const bool train = listed == nullptr || std::find(listed->begin(), listed->end(), Value("train")) != listed->end();
  config.datasets_to_split = !grouped && train ? List{"train"} : List{};
  return config;
}

}  // namespace

Result run_boosting(const std::string& library, const BoostingOptions& options, void (*train)(const Config&),
                    const std::function<void()>& load) {
  Config config = checked_config(library, options);
  load();
  return DataParallelTrainer(train, {.config = std::move(config),
                                     .datasets = options.datasets,
                                     .dataset_config = divided(library, options),
                                     .scaling = options.scaling,
                                     .run = options.run,
                                     .resume_from_checkpoint = options.resume_from_checkpoint,
                                     .metadata = options.metadata,
                                     .owns_loop = true})
      .fit();
}

RowColumns job_columns(const Config& config) {
  RowColumns columns{strings_of(config["features"]),
                     config["label_column"].as_string(),
                     config["weight_column"].as_string(),
                     config["group_column"].as_string(),
                     {}};
  columns.categories = agreed_categories("train", columns, strings_of(config["categorical"]));
  return columns;
}

std::vector<std::string> evaluated_datasets(const Config& config) {
  std::vector<std::string> names = strings_of(config["datasets"]);
  std::erase(names, "train");
  return names;
}

}  // namespace trireme::boosting
