#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/past_fit.h"
#include "api/runtime.h"
#include "api/trainer_datasets.h"
#include "trireme/trainer.h"
#include "worker/session.h"

namespace trireme::api {

// "std::runtime_error: no such batch".
std::string told(const std::string& error_type, const std::string& message);

// What the driver tells its C++ workers to run.
struct Job {
  std::string function;  // a registered name; empty: go through main() up to the fit() after the past ones
  Config config;
  std::vector<PastFit> past;  // the program's earlier fits, for workers that go through main()
  Dict datasets = {};         // what all workers must have alike of them; see trainer_datasets.h

  Bytes encode() const;
  static base::Result<Job> decode(const Bytes& bytes);
};

// A C++ program that uses trireme: the same binary is the driver and, executed again, each worker.
class Program {
 public:
  struct Registered {
    std::string name;
    const void* address;
    TrainFunction function;
  };

  // The one of this process: free functions, static registrations and replayed mains meet in it.
  static Program& instance();

  void add(Registered function) { functions_.push_back(std::move(function)); }
  const Registered* find(const void* address) const;
  const Registered* find(const std::string& name) const;

  // Returns in the driver, and in a worker that must go through main(); a worker of a registered function ends here.
  void init(int argc, char** argv, const InitOptions& options);
  bool initialised() const { return !argv_.empty(); }
  const std::vector<std::string>& argv() const { return argv_; }
  Runtime& runtime() { return runtime_; }

  // Runs one fit() and keeps how it ended. In a worker that goes through main() it repeats an earlier one instead, or,
  // at its own, runs the training function and does not return.
  Result fit(const TrainFunction& function, const TrainerDatasets& datasets, const std::function<Result()>& run);
  // Those before the one that runs.
  const std::vector<PastFit>& past() const { return past_; }

 private:
  Program() = default;
  ~Program();
  void join_run();
  void check_names() const;
  Result replay(const TrainFunction& function, const TrainerDatasets& datasets);
  [[noreturn]] void work(const TrainFunction& function, const TrainerDatasets& datasets);
  // Whether the function did not fail.
  bool run_attempt(const TrainFunction& function, const TrainerDatasets& datasets);

  std::vector<Registered> functions_;
  std::vector<std::string> argv_;
  Runtime runtime_{{}};
  std::vector<PastFit> past_;
  bool fitting_ = false;

  // In a worker only.
  std::shared_ptr<worker::Session> session_;  // shared with the Current of the function
  Job job_;
  std::size_t replayed_ = 0;
};

}  // namespace trireme::api
