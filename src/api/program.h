#pragma once

#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "api/runtime.h"
#include "trireme/trainer.h"
#include "worker/session.h"

namespace trireme::api {

// What the driver tells its C++ workers to run.
struct Job {
  std::string function;             // a registered name; empty: go through main() up to fit number `fit`
  std::int64_t fit = 0;             // which fit() of the program this is, from 0
  Config config;
  std::vector<std::string> results; // folders of the earlier fits, for workers that go through main()

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

  // Number of this fit() call in the program.
  std::int64_t next_fit() { return fits_++; }
  // In a worker that goes through main(): the result of an earlier fit(), or, at its own fit(), no return.
  std::optional<Result> replay(std::int64_t fit, const TrainFunction& function);
  void remember(std::string result_path) { results_.push_back(std::move(result_path)); }
  const std::vector<std::string>& results() const { return results_; }

 private:
  void join_run();
  [[noreturn]] void work(const TrainFunction& function);

  std::vector<Registered> functions_;
  std::vector<std::string> argv_;
  Runtime runtime_{{}};
  std::int64_t fits_ = 0;
  std::vector<std::string> results_;

  // In a worker only.
  std::shared_ptr<worker::Session> session_;
  Job job_;
};

}  // namespace trireme::api
