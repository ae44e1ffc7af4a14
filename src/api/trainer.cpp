#include "trireme/trainer.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "api/current.h"
#include "api/describe.h"
#include "api/program.h"
#include "api/run.h"
#include "base/json.h"
#include "base/text.h"

extern char** environ;

namespace trireme {
namespace api {
namespace {

constexpr base::Seconds kPump{0.1};

// Ctrl-C and SIGTERM stop the run cleanly once, and hard the second time.
class Interrupts {
 public:
  Interrupts() {
    count_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++count_; };
    ::sigaction(SIGINT, &action, &old_interrupt_);
    ::sigaction(SIGTERM, &action, &old_terminate_);
  }
  ~Interrupts() {
    ::sigaction(SIGINT, &old_interrupt_, nullptr);
    ::sigaction(SIGTERM, &old_terminate_, nullptr);
  }

  void pass_on(Run& run) {
    while (passed_ < count_) {
      run.stop(passed_ == 0 ? "interrupted" : "interrupted again", passed_ > 0);
      ++passed_;
    }
  }

 private:
  static std::atomic<int> count_;
  int passed_ = 0;
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};
std::atomic<int> Interrupts::count_ = 0;

RunSpec make_spec(const Job& job, const TrainerOptions& options) {
  RunSpec spec;
  spec.trainer = "DataParallelTrainer";
  spec.scaling = options.scaling;
  spec.run = options.run;
  spec.payload = job.encode();
  spec.argv = Program::instance().argv();
  spec.argv.front() = std::filesystem::read_symlink("/proc/self/exe");
  for (char** each = environ; *each; ++each) {
    std::string_view variable = *each;
    std::size_t equals = variable.find('=');
    if (equals != std::string_view::npos) spec.env.emplace(variable.substr(0, equals), variable.substr(equals + 1));
  }
  spec.cwd = std::filesystem::current_path();
  if (const Value* variables = options.run.worker_runtime_env.find("env_vars")) {
    for (const auto& [name, text] : variables->as_dict()) spec.env[name] = text.as_string();
  }
  if (const Value* folder = options.run.worker_runtime_env.find("working_dir")) spec.cwd = folder->as_string();
  if (options.resume_from_checkpoint) spec.resume_from_checkpoint = options.resume_from_checkpoint->path();
  spec.metadata = options.metadata;
  spec.every_report = false;
  return spec;
}

void show(const std::vector<Dict>& events) {
  for (const auto& event : events) {
    if (auto line = describe(event)) std::printf("%s\n", line->c_str());
  }
  std::fflush(stdout);
}

Dict outcome_dict(const control::RunEnd& end, const std::string& path) {
  Dict outcome{{"outcome", control::to_string(end.outcome)}, {"path", path}, {"seconds", end.seconds}};
  outcome["error"] = end.error.empty() ? Value() : Value(end.error);
  outcome["metrics"] = end.metrics ? Value(*end.metrics) : Value();
  outcome["checkpoint"] = end.checkpoint ? Value(*end.checkpoint) : Value();
  outcome["attempts"] = end.attempts;
  outcome["reports"] = end.reports;
  return outcome;
}

[[noreturn]] void throw_failure(const control::RunEnd& end, const std::string& path) {
  std::vector<WorkerFailure> failures;
  for (const auto& each : end.failures) {
    failures.push_back({each.rank, each.pid, each.host, each.cause, each.error_type, each.message, each.traceback,
                        each.log_tail, each.collateral});
  }
  std::string text = "training " + end.error;
  if (end.outcome == control::Outcome::kFailed) text = "training failed: " + end.error;
  if (!failures.empty()) {
    const auto& first = failures.front();
    if (!first.traceback.empty()) text += "\n" + first.traceback;
    if (!first.log_tail.empty()) text += fmt::format("\nlast lines of its log:\n  {}", base::join(first.log_tail, "\n  "));
  }
  text += "\nrun folder: " + path;
  throw TrainingFailedError(text, std::move(failures));
}

Result fit_locally(const TrainFunction& function, const TrainerOptions& options) {
  Current current;
  current.context.experiment_name = options.run.name.value_or("local");
  current.context.metadata = options.metadata;
  current.checkpoint = options.resume_from_checkpoint;
  Result result;
  {
    CurrentScope scope(current);
    result.return_value = function(options.config);
  }
  result.metrics = current.metrics;
  result.checkpoint = current.checkpoint;
  result.reports = current.reports;
  result.attempts = 1;
  return result;
}

}  // namespace
}  // namespace api

void init(int argc, char** argv, const InitOptions& options) { api::Program::instance().init(argc, argv, options); }

void shutdown() { api::Program::instance().runtime().shutdown(); }

FunctionRegistration::FunctionRegistration(const char* name, const void* address, TrainFunction function) {
  api::Program::instance().add({name, address, std::move(function)});
}

DataParallelTrainer::DataParallelTrainer(TrainFunction function, const void* address, TrainerOptions options)
    : function_(std::move(function)), address_(address), options_(std::move(options)) {}

Result DataParallelTrainer::fit() {
  auto& program = api::Program::instance();
  if (!program.initialised()) throw std::logic_error("call trireme::init(argc, argv) at the start of main(), before fit()");
  const std::int64_t fit = program.next_fit();
  if (auto earlier = program.replay(fit, function_)) return *std::move(earlier);
  validate(options_.scaling);
  validate(options_.run);
  if (options_.scaling.num_workers.max == 0) {
    program.remember("");
    return api::fit_locally(function_, options_);
  }
  const auto* registered = program.find(address_);
  api::Job job{registered ? registered->name : "", fit, options_.config, program.results()};
  auto prepared = api::Run::prepare(program.runtime(), api::make_spec(job, options_));
  if (!prepared) throw ConfigError(prepared.error().message());
  api::Run& run = **prepared;
  control::RunEnd end;
  {
    api::Interrupts interrupts;
    auto started = run.start();
    if (!started) throw std::runtime_error(started.error().message());
    while (!run.finished()) {
      interrupts.pass_on(run);
      api::show(run.next(api::kPump));
    }
    end = run.wait();
  }
  std::printf("%s", api::result_table(api::outcome_dict(end, run.path())).c_str());
  std::fflush(stdout);
  program.remember(run.path());
  if (end.outcome != control::Outcome::kFinished) api::throw_failure(end, run.path());
  Result result = Result::from_path(run.path());
  result.attempts = end.attempts;
  result.seconds = end.seconds;
  result.reports = end.reports;
  if (end.checkpoint) result.checkpoint = Checkpoint(*end.checkpoint);
  if (end.return_value) {
    if (auto value = base::parse_msgpack(end.return_value->data)) result.return_value = *std::move(value);
  }
  return result;
}

}  // namespace trireme
