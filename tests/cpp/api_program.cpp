#include <trireme/trireme.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <map>
#include <string>
#include <thread>

// One program with many modes: tests/python/test_cpp_examples.py runs one and checks the result.

namespace {

using trireme::Config;
using trireme::DataParallelTrainer;
using trireme::Result;
using trireme::TrainerOptions;

int rank() { return trireme::context().world_rank; }

void wait_for_ever() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void throws_on_rank_one() {
  if (rank() == 1) {
    std::cout << "last words" << std::endl;
    throw std::out_of_range("no such batch");
  }
  trireme::collective::barrier();
  wait_for_ever();
}
TRIREME_TRAIN_FUNCTION(throws_on_rank_one);

void throws_a_number() { throw 7; }
TRIREME_TRAIN_FUNCTION(throws_a_number);

void killed_on_rank_one() {
  if (rank() == 1) std::raise(SIGKILL);
  trireme::collective::barrier();
  wait_for_ever();
}
TRIREME_TRAIN_FUNCTION(killed_on_rank_one);

void waits(const Config& config) {
  if (config["stubborn"].get<bool>()) std::signal(SIGTERM, SIG_IGN);
  trireme::collective::barrier();
  std::ofstream(trireme::context().path + "/inside_" + std::to_string(rank())) << "";
  wait_for_ever();
}
TRIREME_TRAIN_FUNCTION(waits);

namespace nested {

trireme::Value everything(const Config& config) {
  const auto& context = trireme::context();
  trireme::report({{"loss", 0.5}, {"nested", trireme::Dict{{"list", trireme::List{1, "two", nullptr, true}}}}});
  const char* variable = std::getenv("GIVEN_TO_WORKERS");
  trireme::Dict seen{{"config", config}, {"world_size", context.world_size}, {"name", context.experiment_name}};
  seen["metadata"] = context.metadata;
  seen["variable"] = variable ? trireme::Value(variable) : trireme::Value();
  seen["omp"] = std::getenv("OMP_NUM_THREADS");
  return seen;
}
TRIREME_TRAIN_FUNCTION(nested::everything);

}  // namespace nested

void fits_inside() { DataParallelTrainer(nested::everything).fit(); }
TRIREME_TRAIN_FUNCTION(fits_inside);

TrainerOptions two_workers(const std::string& name) {
  return {.scaling = {.num_workers = 2}, .run = {.name = name, .stop_grace_s = 5}};
}

void print_failure(const trireme::TrainingFailedError& error) {
  std::cout << "FAILED " << error.what() << "\n";
  for (const auto& failure : error.worker_failures()) {
    std::cout << "FAILURE rank " << failure.rank << " pid " << failure.pid << " cause " << failure.cause << " type "
              << failure.error_type << "\n";
  }
}

template <typename F>
int fit_and_print_failure(F function, TrainerOptions options) {
  try {
    DataParallelTrainer(function, std::move(options)).fit();
  } catch (const trireme::TrainingFailedError& error) {
    print_failure(error);
    return 3;
  }
  return 0;
}

int everything() {
  TrainerOptions options = two_workers("everything");
  options.config = {{"lr", 0.1}, {"layers", trireme::List{64, 10}}};
  options.metadata = {{"team", "blue"}};
  options.run.worker_runtime_env = {{"env_vars", trireme::Dict{{"GIVEN_TO_WORKERS", "a secret"}}}};
  const Result result = DataParallelTrainer(nested::everything, options).fit();
  const auto& value = result.return_value;
  const bool right = value["config"].as_dict() == options.config && value["world_size"].as_int() == 2 &&
                     value["name"].as_string() == "everything" && value["metadata"]["team"].as_string() == "blue" &&
                     value["variable"].as_string() == "a secret" && value["omp"].as_string() == "1" &&
                     result.metrics->at("nested")["list"][1].as_string() == "two" && result.attempts == 1 &&
                     result.reports == 1 && result.metrics_history().size() == 1 && !result.error &&
                     Result::from_path(result.path).metrics == result.metrics;
  std::cout << (right ? "RIGHT\n" : "WRONG\n");
  return right ? 0 : 1;
}

int local() {
  const int before = 7;
  int seen = 0;
  const Result result = DataParallelTrainer(
                            [&] {
                              seen = before + trireme::context().world_size;
                              trireme::collective::barrier();
                              trireme::report({{"pid", static_cast<int>(::getpid())}});
                              return trireme::collective::broadcast_from_rank_zero("from here");
                            },
                            {.scaling = {.num_workers = 0}})
                            .fit();
  const bool right = seen == 8 && result.return_value.as_string() == "from here" && result.path.empty() &&
                     result.metrics->at("pid").get<int>() == static_cast<int>(::getpid()) && result.reports == 1;
  try {
    DataParallelTrainer([] { throw std::domain_error("as it was thrown"); }, {.scaling = {.num_workers = 0}}).fit();
    return 1;
  } catch (const std::domain_error&) {
    std::cout << (right ? "RIGHT\n" : "WRONG\n");
  }
  return right ? 0 : 1;
}

// A lambda after fits with every kind of outcome: its workers replay all of them.
int replay() {
  std::string way;
  try {
    DataParallelTrainer(throws_a_number, {.scaling = {.num_workers = -1}}).fit();
  } catch (const trireme::ConfigError& refused) {
    way += "refused ";
  }
  try {
    DataParallelTrainer(throws_on_rank_one, two_workers("replay_failed")).fit();
  } catch (const trireme::TrainingFailedError& failed) {
    way += failed.worker_failures().at(0).error_type + " ";
  }
  const Result here = DataParallelTrainer([] { return 21; }, {.scaling = {.num_workers = 0}}).fit();
  way += std::to_string(here.return_value.get<int>());
  const Result result = DataParallelTrainer([&way] { return way; }, two_workers("replay")).fit();
  std::cout << "WAY " << result.return_value.as_string() << "\n";
  return result.return_value.as_string() == way ? 0 : 1;
}

int wayward() {
  if (std::getenv("TRIREME_WORKER")) return 0;
  const int captured = 1;
  return fit_and_print_failure([captured] { return captured; }, two_workers("wayward"));
}

int refused() {
  std::map<std::string, TrainerOptions> bad;
  bad["num_workers"] = {.scaling = {.num_workers = -1}};
  bad["use_gpu"] = {.scaling = {.num_workers = 1, .resources_per_worker = trireme::Resources{{"GPU", 1}}}};
  bad["name"] = {.run = {.name = "a/b"}};
  bad["licence"] = {.scaling = {.num_workers = 1, .resources_per_worker = trireme::Resources{{"licence", 1}}}};
  bad["py_modules"] = {.run = {.worker_runtime_env = {{"py_modules", trireme::List{}}}}};
  bad["working_dir"] = {.run = {.worker_runtime_env = {{"working_dir", "/no/such/folder"}}}};
  for (const auto& [word, options] : bad) {
    try {
      DataParallelTrainer(nested::everything, options).fit();
      return 1;
    } catch (const trireme::ConfigError& error) {
      std::cout << "REFUSED " << word << ": " << error.what() << "\n";
    }
  }
  return 0;
}

int interrupted(bool stubborn) {
  TrainerOptions options = two_workers("waiting");
  options.config = {{"stubborn", stubborn}};
  if (stubborn) options.run.stop_grace_s = 600;
  return fit_and_print_failure(waits, options);
}

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::string what = argc > 1 ? argv[1] : "";
  if (what == "everything") return everything();
  if (what == "exception") return fit_and_print_failure(throws_on_rank_one, two_workers("exception"));
  if (what == "number") return fit_and_print_failure(throws_a_number, two_workers("number"));
  if (what == "killed") return fit_and_print_failure(killed_on_rank_one, two_workers("killed"));
  if (what == "inside") return fit_and_print_failure(fits_inside, two_workers("inside"));
  if (what == "local") return local();
  if (what == "replay") return replay();
  if (what == "wayward") return wayward();
  if (what == "refused") return refused();
  if (what == "wait") return interrupted(false);
  if (what == "stubborn") return interrupted(true);
  std::cerr << "unknown mode: '" << what << "'\n";
  return 2;
}
