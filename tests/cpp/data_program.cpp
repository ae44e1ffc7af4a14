#include <trireme/trireme.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <functional>
#include <iostream>
#include <map>
#include <string>
#include <thread>

#ifdef TRIREME_TEST_ARROW
#include <trireme/arrow/data.h>
#endif

// Datasets in a C++ program: tests/python/test_cpp_data.py passes the name of a scenario and checks the result.

namespace {

using trireme::Config;
using trireme::Dataset;
using trireme::Dict;
using trireme::List;
using trireme::Tensor;
namespace data = trireme::data;

List numbers(const trireme::Batch& batch, const char* column) {
  List list;
  for (auto value : batch[column].values<std::int64_t>()) list.emplace_back(value);
  return list;
}

// Reports every batch, on rank 0 with a checkpoint at regular steps. Kills rank 1 if `kill` is set.
void train(const Config& config) {
  const auto& context = trireme::context();
  const auto shard = trireme::get_dataset_shard("train");
  std::int64_t step = 0;
  if (auto checkpoint = trireme::get_checkpoint()) step = checkpoint->load_state()["step"].as_int();
  while (shard.epoch() < config["epochs"].as_int()) {
    for (auto& batch : shard.iter_batches({.global_batch_size = 8})) {
      ++step;
      trireme::collective::barrier();  // earlier reports are from all ranks, even if one is killed
      if (step == config["kill"].as_int() && context.attempt == 0 && context.world_rank == 1) std::raise(SIGKILL);
      std::optional<trireme::Checkpoint> checkpoint;
      if (step % 5 == 0) checkpoint = trireme::Checkpoint::from_state({{"step", step}});
      trireme::report({{"step", step}, {"epoch", shard.epoch()}, {"ids", numbers(batch, "id")}}, checkpoint);
    }
  }
}
TRIREME_TRAIN_FUNCTION(train);

Dict state_of(const trireme::DataShard& shard) {
  const auto stats = shard.stats();
  return {{"state", shard.state()}, {"rows", shard.rows()}, {"given", stats.rows}, {"batches", stats.batches}};
}

// A part of "train", all of "valid", and the positions of both.
trireme::Value looks() {
  const auto train = trireme::get_dataset_shard("train");
  const auto valid = trireme::get_dataset_shard("valid");
  List mine;
  for (auto& row : train.iter_rows()) mine.push_back(row["x"]);
  std::int64_t sum = 0;
  for (auto& batch : valid.iter_batches({.batch_size = 3})) {
    for (auto value : batch["id"].values<std::int64_t>()) sum += value;
  }
  trireme::report({{"mine", mine}, {"sum", sum}, {"train", state_of(train)}, {"valid", state_of(valid)}});
  try {
    trireme::get_dataset_shard("tran");
  } catch (const std::runtime_error& error) {
    return error.what();
  }
  return nullptr;
}

// "8" or "8,3": the step at which a worker is killed, and the number of workers; with two numbers the run may fail
// once.
int fit(const std::string& arguments) {
  const auto comma = arguments.find(',');
  const int workers = comma == std::string::npos ? 2 : std::stoi(arguments.substr(comma + 1));
  const auto ids = data::range(103).random_shuffle();
  trireme::TrainerOptions options;
  options.config = {{"epochs", 2}, {"kill", std::stoi(arguments)}};
  options.datasets = {{"train", ids}};
  options.dataset_config = {.seed = 5, .log_samples = true};
  options.scaling.num_workers = workers;
  options.run.name = "data";
  options.run.failure_config.max_failures = workers == 2;
  const auto result = trireme::DataParallelTrainer(train, options).fit();
  std::cout << "attempts " << result.attempts << "\n";
  return 0;
}

int look(const std::string& workers) {
  const double factor = 0.5;
  auto points = data::range(11).map([factor](const Dict& row) -> Dict {
    return {{"x", row["id"].as_double() * factor}};
  });
  trireme::TrainerOptions options;
  options.datasets = {{"train", points}, {"valid", data::range(10)}};
  options.dataset_config.datasets_to_split = List{"train"};
  options.scaling.num_workers = std::stoi(workers);
  options.run.name = "look";
  const auto result = trireme::DataParallelTrainer(looks, options).fit();
  std::cout << result.return_value.as_string() << "\n";
  return 0;
}

// The reader would take minutes for its first batch. The other worker fails, and this one must still exit.
void waits() {
  const auto shard = trireme::get_dataset_shard("train");
  if (trireme::context().world_rank == 1) {
    if (trireme::context().attempt > 0) return;
    trireme::collective::barrier();
    throw std::runtime_error("a reason to begin again");
  }
  if (trireme::context().attempt > 0) return;
  trireme::collective::barrier();
  for (auto& batch : shard.iter_batches()) (void)batch;
}
TRIREME_TRAIN_FUNCTION(waits);

int interrupted(const std::string&) {
  const auto slow = data::range(1000).map_batches(
      [](const trireme::Batch& batch) -> Dict {
        std::this_thread::sleep_for(std::chrono::milliseconds(200));
        return {{"id", batch["id"]}};
      },
      {.batch_size = 1});
  const auto result =
      trireme::DataParallelTrainer(
          waits, {.datasets = {{"train", slow}},
                  .scaling = {.num_workers = 2},
                  .run = {.name = "interrupted", .failure_config = {.max_failures = 1, .warm_restart = true}}})
          .fit();
  std::cout << "attempts " << result.attempts << "\n";
  return 0;
}

int refused(const std::string& what) {
  trireme::TrainerOptions options;
  options.run.name = "refused";
  options.scaling.num_workers = 3;
  options.datasets = {{"train", data::range(what == "small" ? 2 : 100)}};
  if (what == "empty") options.datasets.at("train") = data::range(0);
  if (what == "name") options.dataset_config.datasets_to_split = List{"tran"};
  if (what == "throws") {
    options.datasets.at("train") = data::range(10).filter([](const Dict& row) {
      if (row["id"].as_int() == 7) throw std::runtime_error("no sevens");
      return true;
    });
  }
  if (what == "differs") {
    const bool driver = std::getenv("TRIREME_TEST_DRIVER") != nullptr;
    ::unsetenv("TRIREME_TEST_DRIVER");
    options.datasets.at("train") = data::range(driver ? 100 : 99);
  }
  try {
    trireme::DataParallelTrainer(looks, options).fit();
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 3;
  }
  return 0;
}

#ifdef TRIREME_TEST_ARROW
int read(const std::string& path) {
  Dataset rows = path.ends_with(".csv") || path.ends_with("csv.gz") ? data::read_csv(path)
                 : path.ends_with(".jsonl")                         ? data::read_json(path)
                 : path.ends_with(".txt") || path.ends_with(".gz")  ? data::read_text(path)
                 : path.ends_with(".bin")                           ? data::read_binary_files(path)
                                                                    : data::read_parquet(path);
  std::cout << "rows " << rows.count() << " fragments " << rows.num_fragments() << "\n"
            << rows.schema() << "--\n"
            << std::flush;
  rows.show(1'000'000);
  return 0;
}

int order(const std::string& path) {
  for (auto& row : data::read_parquet(path).random_shuffle({.seed = 7}).iter_rows())
    std::cout << row["id"].as_int() << "\n";
  return 0;
}

int skip(const std::string& path) {
  data::read_parquet(path, {.skip_bad_files = true}).show();
  return 0;
}

// A file is removed before the second epoch.
int vanish(const std::string& folder) {
  const auto shard = data::read_parquet(folder).streaming_split(1).front();
  for (int epoch = 0; epoch < 2; ++epoch) {
    for (auto& batch : shard.iter_batches({.batch_size = 20})) std::cout << "took " << batch.rows() << "\n";
    std::filesystem::remove(folder + "/b.parquet");
  }
  return 0;
}

// The same through a trainer: two workers, each with its part.
void copies(const Config& config) {
  const auto shard = trireme::get_dataset_shard("train");
  List ids;
  for (auto& batch : shard.iter_batches({.batch_size = config["batch"].as_int()})) {
    for (auto& id : numbers(batch, "id")) ids.push_back(std::move(id));
  }
  trireme::report({{"ids", std::move(ids)}});
}
TRIREME_TRAIN_FUNCTION(copies);

int train_on(const std::string& path) {
  trireme::DataParallelTrainer(copies, {.config = {{"batch", 16}},
                                        .datasets = {{"train", data::read_parquet(path).select_columns({"id"})}},
                                        .scaling = {.num_workers = 2},
                                        .run = {.name = "train_on"}})
      .fit();
  return 0;
}

std::int64_t kilobytes(const std::string& what) {
  std::ifstream status("/proc/self/status");
  std::string name;
  std::int64_t value = 0;
  while (status >> name) {
    if (name == what + ":" && status >> value) return value;
    std::getline(status, name);
  }
  throw std::runtime_error("no " + what + " in /proc/self/status");
}

// The memory growth of the worker during a pass, after the first batch has loaded everything.
void grows() {
  for (auto& batch : trireme::get_dataset_shard("warm").iter_batches({.batch_size = 512})) (void)batch;
  const auto shard = trireme::get_dataset_shard("train");
  const std::int64_t before = kilobytes("VmRSS");
  std::ofstream("/proc/self/clear_refs") << "5";  // resets the peak
  std::int64_t rows = 0;
  for (auto& batch : shard.iter_batches({.batch_size = 512})) rows += batch.rows();
  trireme::report({{"rows", rows}, {"grown_kb", kilobytes("VmHWM") - before}});
}
TRIREME_TRAIN_FUNCTION(grows);

int memory(const std::string& folder) {
  const auto rows = data::read_parquet(folder);
  trireme::DataParallelTrainer(grows, {.datasets = {{"train", rows}, {"warm", rows.limit(1024)}},
                                       .dataset_config = {.memory_budget = "64MB"},
                                       .scaling = {.num_workers = 1},
                                       .run = {.name = "memory"}})
      .fit();
  return 0;
}

int write(const std::string& folder) {
  const auto rows = data::range(1000).map_batches([](const trireme::Batch& batch) -> Dict {
    const auto ids = batch["id"].values<std::int64_t>();
    std::vector<float> x;
    List names;
    for (auto id : ids) {
      x.insert(x.end(), {static_cast<float>(id), static_cast<float>(id) / 2});
      names.emplace_back(id % 3 ? trireme::Value("n" + std::to_string(id)) : trireme::Value());
    }
    return {{"id", batch["id"]}, {"x", Tensor::of(x, {batch.rows(), 2})}, {"name", names}};
  });
  data::write_parquet(rows, folder + "/parquet");
  data::write_csv(rows.drop_columns({"x"}), folder + "/csv");
  data::write_parquet(
      data::sort_by(rows.filter([](const Dict& row) { return row["id"].as_int() % 7 == 0; }), {"id"}, true),
      folder + "/sorted");
  const auto keyed = data::range(100).map([](const Dict& row) -> Dict {
    return {{"key", row["id"].as_int() % 3}, {"id", row["id"]}};
  });
  data::write_parquet(data::group_by(keyed, {"key"}, {{"id", "sum"}, {"id", "count", "n"}}), folder + "/grouped");
  data::write_parquet(data::group_by(keyed, {}, {{"id", "max"}, {"id", "mean"}, data::count_rows()}),
                      folder + "/whole");
  data::write_parquet(data::group_by(keyed, {"key"}, {data::count_rows("rows"), {"", "count"}}), folder + "/counted");
  try {
    (void)data::group_by(keyed, {"key"}, {{"", "sum"}});
    return 1;
  } catch (const trireme::ValueError& refused) {
    std::cout << refused.what() << "\n";
  }
  const auto names = data::from_items({{{"key", 0}, {"name", "zero"}}, {{"key", 2}, {"name", "two"}}});
  data::write_parquet(data::sort_by(data::join(keyed, names, {"key"}, "left"), {"id"}), folder + "/joined");
  return 0;
}
#endif

const std::map<std::string, std::function<int(const std::string&)>> kWays = {
    {"fit", fit},         {"look", look},         {"interrupted", interrupted},
    {"refused", refused},
#ifdef TRIREME_TEST_ARROW
    {"read", read},       {"train_on", train_on}, {"order", order},
    {"skip", skip},       {"vanish", vanish},     {"write", write},
    {"memory", memory},
#endif
};

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc < 3 || !kWays.contains(argv[1])) return 2;
  try {
    return kWays.at(argv[1])(argv[2]);
  } catch (const std::exception& error) {
    std::cout << error.what() << "\n";
    return 1;
  }
}
