#include <signal.h>
#include <sys/wait.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <cstdlib>
#include <exception>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <stdexcept>
#include <string>
#include <thread>

// A trainer with faults: tests/python/test_cpp_failures.py chooses them and checks the result.

namespace {

using trireme::Checkpoint;
using trireme::Config;
using trireme::DataParallelTrainer;
using trireme::TrainerOptions;

constexpr int kSteps = 4;
constexpr int kBadStep = 2;
constexpr auto kPause = std::chrono::milliseconds(20);

// Process state that survives attempts: the number of calls of the function, and a thread.
int g_entered = 0;
std::atomic<int> g_ticks = 0;

std::string file_in_run(const std::string& name) { return trireme::context().path + "/" + name; }

// Reports this call of the function and its starting point to the test.
int enter() {
  if (g_entered++ == 0) {
    std::thread([] {
      while (true) {
        ++g_ticks;
        std::this_thread::sleep_for(std::chrono::milliseconds(1));
      }
    }).detach();
  }
  const auto& context = trireme::context();
  int next = 0;
  if (auto checkpoint = trireme::get_checkpoint()) next = checkpoint->load_state(0).at("next").get<int>();
  const std::string name = "entered_" + std::to_string(context.attempt) + "_" + std::to_string(context.world_rank);
  std::ofstream(file_in_run(name + ".draft"))
      << ::getpid() << ' ' << g_entered << ' ' << (g_ticks > 0) << ' ' << next << ' ' << context.world_size;
  std::filesystem::rename(file_in_run(name + ".draft"), file_in_run(name));
  return next;
}

void report_step(int step) {
  std::optional<Checkpoint> checkpoint;
  if (trireme::context().world_rank == 0) checkpoint = Checkpoint::from_state({{"next", step + 1}});
  trireme::report({{"step", step}}, checkpoint);
}

[[gnu::noinline]] void stuck_in_here() {
  while (true) std::this_thread::sleep_for(std::chrono::hours(1));
}

void suffer(const std::string& fault) {
  if (fault == "kill") ::raise(SIGKILL);
  if (fault == "stop") ::raise(SIGSTOP);
  if (fault == "exception") throw std::out_of_range("no such batch");
  if (fault == "exit") std::exit(0);
  if (fault == "nested") {
    try {
      throw std::invalid_argument("the file is empty");
    } catch (const std::exception&) {
      std::throw_with_nested(std::runtime_error("batch 2 could not be read"));
    }
  }
  if (fault == "hang") stuck_in_here();
}

// Where the other ranks wait in the meantime. None of these returns by itself.
void be_elsewhere(const std::string& place) {
  if (place == "barrier") trireme::collective::barrier();
  while (place == "poll") trireme::check_interrupted();
  while (place == "handler") {
    try {
      trireme::report({{"step", kBadStep}});
      std::this_thread::sleep_for(kPause);
    } catch (const std::exception& error) {
      std::cout << "caught " << error.what() << std::endl;
    }
  }
  volatile unsigned sum = 0;
  while (place == "computation") sum = sum + 1;
}

std::string survives(const Config& config) {
  const int first = enter();
  for (int step = first; step < kSteps; ++step) {
    if (trireme::context().attempt == 0 && step == kBadStep) {
      if (trireme::context().world_rank == 1) suffer(config["fault"].as_string());
      be_elsewhere(config["place"].as_string());
    }
    report_step(step);
    trireme::collective::barrier();
  }
  return std::to_string(first);
}
TRIREME_TRAIN_FUNCTION(survives);

// Runs until a file exists, with a gang of any size.
std::string until_told() {
  const int first = enter();
  for (int step = first;; ++step) {
    const bool last = std::filesystem::exists(file_in_run("finish"));
    if (trireme::collective::broadcast_from_rank_zero(last ? "last" : "") == "last") return std::to_string(first);
    report_step(step);
    std::this_thread::sleep_for(kPause);
  }
}
TRIREME_TRAIN_FUNCTION(until_told);

// Saves a checkpoint only when a preemption is announced.
std::string last_checkpoint() {
  if (auto checkpoint = trireme::get_checkpoint()) return checkpoint->load_state(0).at("told").as_string();
  std::ofstream(file_in_run("pid_" + std::to_string(trireme::context().world_rank))) << ::getpid() << '\n';
  while (true) {
    const auto info = trireme::get_preemption_info();
    std::optional<Checkpoint> checkpoint;
    if (info && trireme::context().world_rank == 0) {
      std::string told = info->why + ", ranks";
      for (const int rank : info->ranks_by_host.begin()->second) told += " " + std::to_string(rank);
      checkpoint = Checkpoint::from_state({{"told", told}});
    }
    trireme::report({{"waits", true}}, checkpoint);
    std::this_thread::sleep_for(kPause);
  }
}
TRIREME_TRAIN_FUNCTION(last_checkpoint);

void start_child(bool group_of_its_own) {
  if (::fork() != 0) return;
  if (group_of_its_own) ::setpgid(0, 0);
  ::execl("/bin/sleep", "sleep", "600", static_cast<char*>(nullptr));
  ::_exit(1);
}

std::string with_children() {
  const int first = enter();
  start_child(false);
  if (first == 0) start_child(true);  // it would outlive a worker that only exits
  for (int step = first; first == 0 || step < first + 2; ++step) {
    report_step(step);
    trireme::collective::barrier();
  }
  return std::to_string(first);
}
TRIREME_TRAIN_FUNCTION(with_children);

// Forked children that leave the function like the worker: by returning, by an exception, by exit(), and one that
// reports.
std::string forks(const Config& config) {
  const std::string how = config["how"].as_string();
  const pid_t child = ::fork();
  if (child == 0) {
    if (how == "throws") throw std::runtime_error("of the child");
    if (how == "exits") std::exit(7);
    if (how == "reports") trireme::report({{"child", true}});
    return "of the child";
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  trireme::report({{"status", WEXITSTATUS(status)}});
  return "of the worker";
}
TRIREME_TRAIN_FUNCTION(forks);

TrainerOptions two_workers() {
  TrainerOptions options{.scaling = {.num_workers = 2}, .run = {.name = "run", .stop_grace_s = 5}};
  options.run.failure_config.max_failures = 1;
  options.run.failure_config.warm_restart = true;
  return options;
}

template <typename F>
int fit(F function, TrainerOptions options) {
  try {
    const auto result = DataParallelTrainer(function, std::move(options)).fit();
    std::cout << "RETURNED " << result.return_value.as_string() << "\n";
    return 0;
  } catch (const trireme::TrainingFailedError& error) {
    std::cout << "FAILED " << error.what() << "\n";
    return 3;
  }
}

int fit_survives(const std::string& fault, const std::string& place) {
  TrainerOptions options = two_workers();
  options.config = {{"fault", fault}, {"place", place}};
  auto& failure = options.run.failure_config;
  if (place == "computation") failure.cancel_timeout_s = 0.3;
  if (fault == "hang") failure.hang_timeout_s = 2.0;
  failure.on_hang = "restart";
  return fit(survives, options);
}

// First checks that the run cannot shrink below its minimum. Then the driver lets it grow when a file exists.
int fit_elastic() {
  TrainerOptions options = two_workers();
  options.scaling.num_workers = trireme::WorkerCount(1, 2);
  options.scaling.trainer_resources = trireme::Resources{};
  std::jthread grows([](const std::stop_token& stop) {
    const std::string folder = std::string(std::getenv("TRIREME_RESULTS")) + "/run/";
    while (!std::filesystem::exists(folder + "grow")) {
      if (stop.stop_requested()) return;
      std::this_thread::sleep_for(kPause);
    }
    try {
      trireme::set_capacity({.num_cpus = 0.5});
    } catch (const trireme::ConfigError& error) {
      std::cout << "REFUSED " << error.what() << std::endl;
    }
    trireme::set_capacity({.num_cpus = 2});
  });
  return fit(until_told, options);
}

}  // namespace

int main(int argc, char** argv) {
  const std::string what = argc > 1 ? argv[1] : "";
  trireme::InitOptions capacity;
  if (what == "elastic") capacity.num_cpus = 1;
  trireme::init(argc, argv, capacity);
  if (what == "survives" && argc == 4) return fit_survives(argv[2], argv[3]);
  if (what == "elastic") return fit_elastic();
  if (what == "forks" && argc == 3) {
    TrainerOptions options = two_workers();
    options.config = {{"how", argv[2]}};
    return fit(forks, options);
  }
  if (what == "last_checkpoint") return fit(last_checkpoint, two_workers());
  if (what == "with_children") return fit(with_children, two_workers());
  std::cerr << "unknown mode: '" << what << "'\n";
  return 2;
}
