#include <fcntl.h>
#include <trireme/trireme.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <exception>
#include <iostream>
#include <map>
#include <optional>
#include <sstream>
#include <string>
#include <thread>
#include <vector>

// The C++ side of the chaos suite: the training of tests/chaos/training.py, with the same numbers. The scenario is
// passed on the command line: its fields as NAME=VALUE, and each fault as KIND:PHASE:RANK:STEP:DELAY.

namespace {

using trireme::Checkpoint;
using trireme::Config;
using trireme::Dict;
using trireme::List;
using trireme::Value;

constexpr int kSteps = 10;
constexpr int kCheckpointEvery = 2;
constexpr int kSamples = 4;
constexpr int kReportsAtOnce = 20;  // per thread and step
constexpr int kRows = 47, kBatchRows = 12;

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
  if (fault.kind == "exception") throw std::runtime_error("as the scenario requires");
  if (fault.kind == "exit") std::exit(3);
  if (fault.kind == "os_exit") ::_exit(0);
  if (fault.kind == "slow") std::this_thread::sleep_for(std::chrono::seconds(1));
  while (fault.kind == "hang") std::this_thread::sleep_for(std::chrono::seconds(1));
}

// Faults that this worker inflicts on itself, once each, even if the function is restarted.
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

  // After a delay, while the function continues.
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

// Reads a global batch at each step, and checks that it is the expected one.
class Data {
 public:
  void advance(int step) {
    if (at_) ++*at_;
    if (!at_ || *at_ == std::default_sentinel) {
      batches_.emplace(shard_.iter_batches({.global_batch_size = kBatchRows}));
      at_.emplace(batches_->begin());
    }
    constexpr int kStepsOfEpoch = (kRows + kBatchRows - 1) / kBatchRows;
    const int epoch = step / kStepsOfEpoch;
    const int rows = std::min((step % kStepsOfEpoch + 1) * kBatchRows, kRows);
    const Dict state = shard_.state();
    if (state.at("epoch").as_int() != epoch || state.at("rows").as_int() != rows) {
      throw std::runtime_error("step " + std::to_string(step) + " got the data up to epoch " +
                               std::to_string(state.at("epoch").as_int()) + ", row " +
                               std::to_string(state.at("rows").as_int()));
    }
    const auto ids = (**at_)["id"].values<std::int64_t>();
    const auto twice = (**at_)["twice"].values<std::int64_t>();
    for (std::size_t i = 0; i < ids.size(); ++i) {
      if (twice[i] != 2 * ids[i]) throw std::runtime_error("the function was not applied");
    }
  }

 private:
  trireme::DataShard shard_ = trireme::get_dataset_shard("train");
  std::optional<trireme::Batches> batches_;
  std::optional<trireme::Batches::Iterator> at_;
};

trireme::Dataset dataset() {
  return trireme::data::range(kRows).random_shuffle({.seed = 7}).map([](const Dict& row) -> Dict {
    return {{"id", row.at("id")}, {"twice", 2 * row.at("id").as_int()}};
  });
}

// This rank's part, if every rank of the attempt has stored its part at the same step.
Dict load_shard(const Checkpoint& checkpoint) {
  const Dict first = checkpoint.load_state(0);
  const int world = first.at("world").get<int>();
  for (int rank = 1; rank < world; ++rank) {
    const Dict part = checkpoint.load_state(rank);
    if (part.at("next") != first.at("next") || part.at("rank").as_int() != rank) {
      throw std::runtime_error("the part of rank " + std::to_string(rank) + " is not of the step of rank 0");
    }
  }
  const int mine = trireme::context().world_rank;
  return mine < world ? checkpoint.load_state(mine) : first;
}

// Metrics only: their order does not matter, and each rank makes the same number of reports.
void report_at_once(int threads, int step) {
  std::vector<std::exception_ptr> failures(static_cast<std::size_t>(threads));
  const auto report = [&](int thread) {
    try {
      for (int i = 0; i < kReportsAtOnce; ++i) trireme::report({{"step", step}});
    } catch (...) {
      failures[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  };
  {
    std::vector<std::jthread> others;
    for (int thread = 1; thread < threads; ++thread) others.emplace_back(report, thread);
    report(0);
  }
  for (const auto& failure : failures) {
    if (failure) std::rethrow_exception(failure);
  }
}

Value train(const Config& config) {
  const Inside inside(config);
  const auto& context = trireme::context();
  const bool stores = context.world_rank == 0 || !config["only_rank_zero"].get<bool>();
  const bool sharded = config["checkpoint"].as_string() == "sharded";
  trireme::ReportOptions options{.checkpoint_upload_mode = config["mode"].as_string() == "ASYNC"
                                                               ? trireme::CheckpointUploadMode::kAsync
                                                               : trireme::CheckpointUploadMode::kSync};
  const std::chrono::duration<double> pace(config["pace_s"].get<double>());
  const std::string padding(config["padding"].get<std::size_t>(), '\0');
  const int reporters = config["reporters"].get<int>();
  inside.reach("rendezvous");
  trireme::collective::barrier();
  std::optional<Data> data;
  if (config["trainer"].as_string() == "data") data.emplace();
  Training training;
  if (auto checkpoint = trireme::get_checkpoint()) {
    const Dict state = sharded ? load_shard(*checkpoint) : checkpoint->load_state();
    training = {state.at("weight").get<double>(), state.at("applied").as_list(), state.at("next").get<int>()};
  }
  for (int step = training.next; step < kSteps; ++step) {
    inside.reach("step", step);
    if (data) data->advance(step);
    const double loss = training.advance(step);
    std::this_thread::sleep_for(pace);
    inside.reach("report", step);
    if (reporters > 1) report_at_once(reporters, step);
    const trireme::Metrics metrics{{"loss", loss}, {"step", step}};
    if ((step + 1) % kCheckpointEvery != 0 || !stores) {
      trireme::report(metrics);
      continue;
    }
    inside.reach_beside("upload", step);
    Dict state{{"weight", training.weight}, {"applied", training.applied}, {"next", step + 1}};
    state["padding"] = trireme::Bytes{padding};
    if (sharded) {
      state["rank"] = context.world_rank;
      state["world"] = context.world_size;
    }
    if (config["slots"].get<bool>()) options.checkpoint_dir_name = "slot" + std::to_string(step / kCheckpointEvery % 2);
    trireme::report(metrics, Checkpoint::from_state(state), options);
  }
  inside.reach("shutdown");
  return training.applied;
}
TRIREME_TRAIN_FUNCTION(train);

trireme::RunConfig run_config(bool keep_in_memory, trireme::WarmRestart warm_restart) {
  return {.name = "chaos",
          .failure_config = {.max_failures = 12,
                             .warm_restart = warm_restart,
                             .cancel_timeout_s = 2.0,
                             .restart_backoff_s = 0.1,
                             .hang_timeout_s = std::stod(std::getenv("TRIREME_CHAOS_HANG_S")),
                             .on_hang = "restart",
                             .preemption_grace_s = 3.0},
          .checkpoint_config = {.keep_in_memory = keep_in_memory},
          .stop_grace_s = 3.0};
}

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  std::map<std::string, std::string> fields;
  List faults;
  for (const std::string& word : std::vector<std::string>(argv + 1, argv + argc)) {
    const auto equals = word.find('=');
    if (equals != std::string::npos) {
      fields[word.substr(0, equals)] = word.substr(equals + 1);
    } else {
      faults.emplace_back(word);
    }
  }
  try {
    const auto number = [&](const char* name) { return std::stoi(fields.at(name)); };
    const auto flag = [&](const char* name) { return number(name) != 0; };
    trireme::TrainerOptions options;
    options.config = {{"folder", fields.at("folder")},
                      {"trainer", fields.at("trainer")},
                      {"checkpoint", fields.at("checkpoint")},
                      {"mode", fields.at("mode")},
                      {"only_rank_zero", flag("only_rank_zero")},
                      {"slots", flag("slots")},
                      {"reporters", number("reporters")},
                      {"pace_s", std::stod(fields.at("pace_s"))},
                      {"padding", number("padding")},
                      {"faults", faults}};
    options.scaling.num_workers = trireme::WorkerCount(number("workers"), number("most_workers"));
    options.scaling.trainer_resources = trireme::Resources{};
    options.scaling.elastic_resize_monitor_interval_s = 0.5;
    trireme::WarmRestart warm_restart;
    if (!flag("auto_restart")) warm_restart = flag("warm_restart");
    options.run = run_config(flag("keep_in_memory"), warm_restart);
    if (flag("num_to_keep")) options.run.checkpoint_config.num_to_keep = number("num_to_keep");
    if (fields.at("trainer") == "data") {
      options.datasets = {{"train", dataset()}};
      options.dataset_config.log_samples = true;
    }
    trireme::DataParallelTrainer(train, options).fit();
  } catch (const std::exception& error) {
    std::cerr << error.what() << "\n";
    return 1;
  }
  return 0;
}
