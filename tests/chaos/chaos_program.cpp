#include <fcntl.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdlib>
#include <iostream>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// The C++ side of the chaos suite: the training of tests/chaos/training.py, with the same numbers. The scenario comes
// on the command line: FOLDER WORKERS MOST_WORKERS MODE ONLY_RANK_ZERO KEEP_IN_MEMORY WARM_RESTART PACE PADDING
// NUM_TO_KEEP [FAULT...],
// each fault as KIND:PHASE:RANK:STEP:DELAY.

namespace {

using trireme::Checkpoint;
using trireme::Config;
using trireme::Dict;
using trireme::List;
using trireme::Value;

constexpr int kSteps = 10;
constexpr int kCheckpointEvery = 2;
constexpr int kSamples = 4;

struct Fault {
  std::string kind;
  std::string phase;
  int rank = 0;
  int step = 0;
  double delay_s = 0;
};

Fault parse(const std::string& text) {
  std::istringstream words(text);
  Fault fault;
  std::string rank, step, delay;
  std::getline(words, fault.kind, ':');
  std::getline(words, fault.phase, ':');
  std::getline(words, rank, ':');
  std::getline(words, step, ':');
  std::getline(words, delay, ':');
  fault.rank = std::stoi(rank);
  fault.step = std::stoi(step);
  fault.delay_s = std::stod(delay);
  return fault;
}

void strike(const Fault& fault) {
  if (fault.kind == "kill") ::kill(::getpid(), SIGKILL);
  if (fault.kind == "stop") ::kill(::getpid(), SIGSTOP);
  if (fault.kind == "term") ::kill(::getpid(), SIGTERM);
  if (fault.kind == "exception") throw std::runtime_error("the scenario says so");
  if (fault.kind == "exit") std::exit(3);
  if (fault.kind == "os_exit") ::_exit(0);
  if (fault.kind == "slow") std::this_thread::sleep_for(std::chrono::seconds(1));
  while (fault.kind == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
}

// What this worker does to itself: once each, however often the function is started again.
class Inside {
 public:
  Inside(const Config& config) : folder_(config["folder"].as_string()) {
    for (const Value& text : config["faults"].as_list()) faults_.push_back(parse(text.as_string()));
  }

  void reach(const std::string& phase, int step = 0) const {
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      if (due(i, phase, step) && first_time(i)) strike(faults_[i]);
    }
  }

  // A moment later, while the function goes on.
  void reach_beside(const std::string& phase, int step) const {
    for (std::size_t i = 0; i < faults_.size(); ++i) {
      if (!due(i, phase, step) || !first_time(i)) continue;
      std::thread([fault = faults_[i]] {
        std::this_thread::sleep_for(std::chrono::duration<double>(fault.delay_s));
        strike(fault);
      }).detach();
    }
  }

 private:
  bool due(std::size_t i, const std::string& phase, int step) const {
    const Fault& fault = faults_[i];
    const bool anytime = phase == "rendezvous" || phase == "shutdown";
    return fault.phase == phase && fault.rank == trireme::context().world_rank && (anytime || fault.step == step);
  }

  bool first_time(std::size_t i) const {
    const std::string path = folder_ + "/fired_" + std::to_string(i);
    const int file = ::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY, 0644);
    if (file >= 0) ::close(file);
    return file >= 0;
  }

  std::string folder_;
  std::vector<Fault> faults_;
};

double gradient(double weight, int step) {
  double sum = 0;
  for (int sample = 0; sample < kSamples; ++sample) sum += weight - ((step * 7 + sample * 3) % 11) / 11.0;
  return sum / kSamples;
}

struct Training {
  double weight = 0.5;
  List applied = List(kSteps, Value(0));
  int next = 0;

  double advance(int step) {
    const std::string here = std::to_string(step) + " " + std::to_string(weight);
    const std::string lead = trireme::collective::broadcast_from_rank_zero(here);
    if (lead != here) throw std::runtime_error("ranks disagree: rank 0 is at " + lead + ", this one at " + here);
    applied[step] = applied[step].as_int() + 1;
    const double slope = gradient(weight, step);
    weight -= 0.3 * slope;
    return slope * slope;
  }
};

Value train(const Config& config) {
  const Inside inside(config);
  const bool stores = trireme::context().world_rank == 0 || !config["only_rank_zero"].get<bool>();
  const trireme::ReportOptions options{.checkpoint_upload_mode = config["mode"].as_string() == "ASYNC"
                                                                     ? trireme::CheckpointUploadMode::kAsync
                                                                     : trireme::CheckpointUploadMode::kSync};
  const std::chrono::duration<double> pace(config["pace_s"].get<double>());
  const std::string padding(config["padding"].get<std::size_t>(), '\0');
  inside.reach("rendezvous");
  trireme::collective::barrier();
  Training training;
  if (auto checkpoint = trireme::get_checkpoint()) {
    const Dict state = checkpoint->load_state();
    training = {state.at("weight").get<double>(), state.at("applied").as_list(), state.at("next").get<int>()};
  }
  for (int step = training.next; step < kSteps; ++step) {
    inside.reach("step", step);
    const double loss = training.advance(step);
    std::this_thread::sleep_for(pace);
    inside.reach("report", step);
    const trireme::Metrics metrics{{"loss", loss}, {"step", step}};
    if ((step + 1) % kCheckpointEvery != 0 || !stores) {
      trireme::report(metrics);
      continue;
    }
    inside.reach_beside("upload", step);
    Dict state{{"weight", training.weight}, {"applied", training.applied}, {"next", step + 1}};
    state["padding"] = trireme::Bytes{padding};
    trireme::report(metrics, Checkpoint::from_state(state), options);
  }
  inside.reach("shutdown");
  return training.applied;
}
TRIREME_TRAIN_FUNCTION(train);

trireme::RunConfig run_config(bool hangs, bool keep_in_memory, bool warm_restart) {
  return {.name = "chaos",
          .failure_config = {.max_failures = 12,
                             .warm_restart = warm_restart,
                             .recall_timeout_s = 2.0,
                             .restart_backoff_s = 0.1,
                             .hang_timeout_s = hangs ? 3.0 : 60.0,
                             .on_hang = "restart",
                             .preemption_grace_s = 3.0},
          .checkpoint_config = {.keep_in_memory = keep_in_memory},
          .stop_grace_s = 3.0};
}

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc < 11) {
    std::cerr << "usage: see the top of chaos_program.cpp\n";
    return 2;
  }
  const std::vector<std::string> words(argv + 1, argv + argc);
  bool hangs = false;
  List faults;
  for (std::size_t i = 10; i < words.size(); ++i) {
    faults.emplace_back(words[i]);
    hangs = hangs || parse(words[i]).kind == "hang";
  }
  trireme::TrainerOptions options;
  options.config = {{"folder", words[0]},
                    {"mode", words[3]},
                    {"only_rank_zero", words[4] == "1"},
                    {"pace_s", std::stod(words[7])},
                    {"padding", std::stoi(words[8])},
                    {"faults", faults}};
  options.scaling.num_workers = trireme::WorkerCount(std::stoi(words[1]), std::stoi(words[2]));
  options.scaling.trainer_resources = trireme::Resources{};
  options.scaling.elastic_resize_monitor_interval_s = 0.5;
  options.run = run_config(hangs, words[5] == "1", words[6] == "1");
  if (words[9] != "0") options.run.checkpoint_config.num_to_keep = std::stoi(words[9]);
  try {
    trireme::DataParallelTrainer(train, options).fit();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
