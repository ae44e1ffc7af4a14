#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "api/cancel_hooks.h"
#include "api/past_fit.h"
#include "api/runtime.h"
#include "api/trainer_datasets.h"
#include "trireme/trainer.h"
#include "worker/session.h"

namespace trireme::api {

// "std::runtime_error: no such batch".
std::string told(const std::string& error_type, const std::string& message);

// What the C++ workers run; sent by the driver.
struct Job {
  std::string function;  // a registered name; empty: run main() up to the fit() after the past ones
  Config config;
  std::vector<PastFit> past;  // the program's earlier fits, for workers that run main()
  Dict datasets = {};         // the plan that all workers share; see trainer_datasets.h

  Bytes encode() const;
  static base::Result<Job> decode(const Bytes& bytes);
};

// A C++ program that uses trireme: the driver and each worker execute the same binary.
class Program {
 public:
  struct Registered {
    std::string name;
    const void* address;
    TrainFunction function;
  };

  // The instance of this process, shared by free functions, static registrations and replayed mains.
  static Program& instance();

  void add(Registered function) { functions_.push_back(std::move(function)); }
  const Registered* find(const void* address) const;
  const Registered* find(const std::string& name) const;

  // Returns in the driver, and in a worker that must run main(); a worker of a registered function exits here.
  void init(int argc, char** argv, const InitOptions& options);
  bool initialised() const { return !argv_.empty(); }
  const std::vector<std::string>& argv() const { return argv_; }
  Runtime& runtime() { return runtime_; }

  // Runs one fit() and records its outcome. In a worker that runs main() it repeats the outcome of an earlier fit() or,
  // at its own fit(), runs the training function and does not return.
  Result fit(const TrainFunction& function, const TrainerDatasets& datasets, const std::function<Result()>& run);
  // The fits before the running one.
  const std::vector<PastFit>& past() const { return past_; }

 private:
  Program() = default;
  ~Program();
  void join_run();
  void check_names() const;
  Result replay(const TrainFunction& function, const TrainerDatasets& datasets);
  [[noreturn]] void work(const TrainFunction& function, const TrainerDatasets& datasets);
  // Whether the function did not fail.
  bool run_attempt(const TrainFunction& function, const TrainerDatasets& datasets,
                   const std::shared_ptr<CancelHooks>& hooks);

  std::vector<Registered> functions_;
  std::vector<std::string> argv_;
  Runtime runtime_{{}};
  std::vector<PastFit> past_;
  bool fitting_ = false;

  // Workers only.
  std::shared_ptr<worker::Session> session_;  // shared with the Current of the function
  Job job_;
  std::size_t replayed_ = 0;
};

}  // namespace trireme::api
