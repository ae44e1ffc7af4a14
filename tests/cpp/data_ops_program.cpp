#include <trireme/trireme.h>

#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <vector>

#ifdef TRIREME_TEST_ARROW
#include <trireme/arrow/data.h>
#endif

// Dataset operations in C++: tests/python/test_cpp_data_ops.py does the same in Python and compares.

namespace {

using trireme::Config;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Value;
namespace data = trireme::data;

using Arguments = std::vector<std::string>;

// Consumes a few batches, or the rest of the epoch, and prints the rows.
Value takes(const Config& config) {
  const auto shard = trireme::get_dataset_shard("train");
  List ids;
  std::int64_t steps = 0;
  for (auto& batch : shard.iter_batches({.global_batch_size = 8})) {
    for (auto id : batch["id"].values<std::int64_t>()) ids.emplace_back(id);
    if (++steps != config["steps"].as_int()) continue;
    trireme::report({{"ids", ids}}, trireme::Checkpoint::from_state({}));
    break;
  }
  return ids;
}
TRIREME_TRAIN_FUNCTION(takes);

// A run of two workers stops in the middle of an epoch; local mode resumes from its checkpoint.
int local(const Arguments&) {
  trireme::TrainerOptions options;
  options.config = {{"steps", 5}};
  options.datasets = {{"train", data::range(103).random_shuffle()}};
  options.dataset_config.seed = 5;
  options.scaling.num_workers = 2;
  options.run.name = "before";
  const auto before = trireme::DataParallelTrainer(takes, options).fit();
  options.config["steps"] = 0;
  options.scaling.num_workers = 0;
  options.resume_from_checkpoint = before.checkpoint;
  const auto rest = trireme::DataParallelTrainer(takes, options).fit();
  options.resume_from_checkpoint.reset();
  const auto all = trireme::DataParallelTrainer(takes, options).fit();
  data::from_items({{{"rest", rest.return_value}, {"all", all.return_value}}}).show();
  return 0;
}

#ifdef TRIREME_TEST_ARROW
int filter(const trireme::Dataset& rows, const Arguments& arguments) {
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const auto kept = rows.filter(arguments[i]);
    List ids;
    for (auto& row : kept.iter_rows()) ids.push_back(row["id"]);
    data::from_items({{{"ids", ids}, {"fragments", kept.num_fragments()}}}).show();
  }
  return 0;
}

int filter_files(const Arguments& arguments) { return filter(data::read_parquet(arguments[0]), arguments); }

int filter_memory(const Arguments& arguments) {
  return filter(data::read_parquet(arguments[0]).materialize(), arguments);
}

int with_columns(const Arguments& arguments) {
  auto rows = data::read_parquet(arguments[0]);
  for (std::size_t i = 2; i < arguments.size(); ++i) {
    rows = rows.with_column("made" + std::to_string(i - 2), arguments[i]);
  }
  data::write_parquet(rows, arguments[1]);
  return 0;
}

int aggregates(const Arguments& arguments) {
  const auto rows = data::read_parquet(arguments[0]);
  using Aggregate = std::function<Value(const std::string&)>;
  const std::map<std::string, Aggregate> functions = {
      {"sum", [&](const auto& column) { return rows.sum(column); }},
      {"min", [&](const auto& column) { return rows.min(column); }},
      {"max", [&](const auto& column) { return rows.max(column); }},
      {"mean", [&](const auto& column) { return rows.mean(column); }},
      {"std", [&](const auto& column) { return rows.std(column); }},
      {"unique", [&](const auto& column) { return Value(rows.unique(column)); }},
  };
  for (const auto& column : rows.columns()) {
    for (const auto& [name, function] : functions) {
      Dict line{{"column", column}, {"function", name}};
      try {
        line["value"] = function(column);
      } catch (const trireme::ValueError& error) {
        line["error"] = error.what();
      }
      data::from_items({line}).show();
    }
  }
  return 0;
}

int join(const Arguments& arguments) {
  const auto left = data::read_parquet(arguments[0] + "/left.parquet");
  const auto right = data::read_parquet(arguments[0] + "/right.parquet");
  for (std::size_t i = 1; i < arguments.size(); ++i) {
    const auto both = data::join(left, right, {"k"}, arguments[i], {.right_on = {"key"}, .right_suffix = "_r"});
    data::write_parquet(both, arguments[0] + "/" + arguments[i]);
  }
  data::join(left, right, {"k"}, "inner", {.right_on = {"key"}}).count();
  return 0;
}

int group(const Arguments& arguments) {
  const auto rows = data::read_parquet(arguments[0]);
  data::write_parquet(data::group_by(rows, {"n", "flag"}, {{"x", "sum"}, {"x", "std"}, {"id", "max", "last"}}),
                      arguments[1]);
  return 0;
}

// Arguments: "format", the file, the folder, the mode, and the column for numpy.
int write(const Arguments& arguments) {
  const auto rows = data::read_parquet(arguments[1]);
  const data::WriteFilesOptions options{.min_rows_per_file = 64, .mode = arguments[3]};
  if (arguments[0] == "parquet") data::write_parquet(rows, arguments[2], options);
  if (arguments[0] == "csv") data::write_csv(rows, arguments[2], options);
  if (arguments[0] == "json") data::write_json(rows, arguments[2], options);
  if (arguments[0] == "numpy") data::write_numpy(rows, arguments[2], arguments[4], options);
  return 0;
}

int zip(const Arguments& arguments) {
  const auto rows = data::read_parquet(arguments[0]);
  rows.zip(rows.select_columns({"id"}).repartition(3)).show(1'000'000);
  return 0;
}
#endif

const std::map<std::string, std::function<int(const Arguments&)>> kWays = {
    {"local", local},
#ifdef TRIREME_TEST_ARROW
    {"filter", filter_files},
    {"filter_in_memory", filter_memory},
    {"with_columns", with_columns},
    {"aggregates", aggregates},
    {"join", join},
    {"write", write},
    {"zip", zip},
    {"group", group},
#endif
};

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc < 2 || !kWays.contains(argv[1])) return 2;
  try {
    return kWays.at(argv[1])(Arguments(argv + 2, argv + argc));
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
