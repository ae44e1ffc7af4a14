#include "trireme/trainer.h"

#include <unistd.h>

#include <atomic>
#include <csignal>
#include <cstdio>
#include <filesystem>

#include "api/display.h"
#include "api/program.h"
#include "api/run.h"
#include "api/train_session.h"
#include "base/config_fields.h"
#include "base/json.h"
#include "base/text.h"
#include "checkpoint/replaced.h"
#include "control/run_folder.h"
#include "storage/open_files.h"

extern char** environ;

namespace trireme {
namespace api {
namespace {

constexpr base::Seconds kPump{0.1};

// Ctrl-C stops the run cleanly. SIGTERM, sent by schedulers before they kill a job, is a preemption of all workers:
// they may still save a last checkpoint. A second signal of either kind stops the run at once.
class Interrupts {
 public:
  Interrupts() {
    interrupts_ = terminations_ = 0;
    struct sigaction action {};
    action.sa_handler = [](int) { ++interrupts_; };
    ::sigaction(SIGINT, &action, &old_interrupt_);
    // A background job ignores Ctrl-C.
    if (old_interrupt_.sa_handler == SIG_IGN) ::sigaction(SIGINT, &old_interrupt_, nullptr);
    action.sa_handler = [](int) { ++terminations_; };
    ::sigaction(SIGTERM, &action, &old_terminate_);
    // Keeps the program's own handler.
    if (old_terminate_.sa_handler != SIG_DFL) ::sigaction(SIGTERM, &old_terminate_, nullptr);
  }
  ~Interrupts() {
    ::sigaction(SIGINT, &old_interrupt_, nullptr);
    ::sigaction(SIGTERM, &old_terminate_, nullptr);
  }

  void pass_on(Run& run) {
    for (; stops_ < interrupts_; ++stops_) run.stop("Ctrl-C", stops_ > 0);
    for (; announced_ < terminations_; ++announced_) {
      if (announced_ == 0) {
        run.announce_preemption({}, {}, "SIGTERM to the driver");
      } else {
        run.stop("SIGTERM, twice", true);
      }
    }
  }

 private:
  // Used by signal handlers.
  static std::atomic<int> interrupts_;
  static std::atomic<int> terminations_;
  int stops_ = 0;
  int announced_ = 0;
  struct sigaction old_interrupt_ {};
  struct sigaction old_terminate_ {};
};
std::atomic<int> Interrupts::interrupts_ = 0;
std::atomic<int> Interrupts::terminations_ = 0;

[[noreturn]] void refuse_runtime_env(const std::string& key, const std::string& why) {
  throw ConfigError(fmt::format("RunConfig.worker_runtime_env['{}']: {}", key, why));
}

// Applies the requested variables and folder on top of the driver's.
void apply_runtime_env(Dict& asked, RunSpec& spec) {
  for (auto& [key, value] : asked) {
    if (key == "env_vars" && value.get_if<Dict>()) {
      List names;
      for (const auto& [name, text] : value.as_dict()) {
        if (!text.get_if<std::string>()) refuse_runtime_env(key, fmt::format("{} is not a string", name));
        spec.env[name] = text.as_string();
        names.emplace_back(name);
      }
      // The run folder records only the names of variables: their values may be secrets.
      value = std::move(names);
    } else if (key == "working_dir" && value.get_if<std::string>()) {
      spec.cwd = std::filesystem::absolute(value.as_string());
      if (!std::filesystem::is_directory(spec.cwd))
        refuse_runtime_env(key, fmt::format("folder {} does not exist", spec.cwd));
    } else if (key == "env_vars" || key == "working_dir") {
      refuse_runtime_env(key, fmt::format("expected {}, got {}", key == "env_vars" ? "a dict of strings" : "a path",
                                          value.type_name()));
    } else {
      refuse_runtime_env(key, "not supported in C++ programs; use env_vars or working_dir");
    }
  }
}

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
  apply_runtime_env(spec.run.worker_runtime_env, spec);
  if (options.resume_from_checkpoint) spec.resume_from_checkpoint = options.resume_from_checkpoint->path();
  spec.metadata = options.metadata;
  spec.share_cuda_visible_devices = options.share_cuda_visible_devices;
  if (options.dataset_config.log_samples) {
    for (const auto& [name, dataset] : options.datasets) spec.logged_datasets.push_back(name);
  }
  spec.owns_loop = options.owns_loop;
  spec.every_report = false;
  return spec;
}

[[noreturn]] void throw_failure(const control::RunEnd& end, const std::string& path) {
  std::vector<WorkerFailure> failures;
  for (const auto& each : end.failures) {
    failures.push_back({each.rank, each.pid, each.host, each.cause, each.error_type, each.message, each.traceback,
                        each.log_tail, each.collateral});
  }
  std::string text = "training failed: " + end.error;
  if (end.outcome == control::Outcome::kStopped) {
    text = fmt::format("training {}; fit() with the same name and storage_path continues it", end.error);
  }
  if (!failures.empty()) {
    const auto& first = failures.front();
    if (!first.traceback.empty()) text += "\n" + first.traceback;
    auto tail = first.log_tail;
    std::erase(tail, told(first.error_type, first.message));  // already in the text
    if (!tail.empty()) text += fmt::format("\nlast lines of its log:\n  {}", base::join(tail, "\n  "));
  }
  text += "\nrun folder: " + path;
  throw TrainingFailedError(text, std::move(failures));
}

// The positions in a checkpoint that a run has stored; a checkpoint created by the user has none.
Dict positions_of(const std::optional<Checkpoint>& checkpoint) {
  if (!checkpoint || checkpoint->state()) return {};
  std::string inside;
  const auto files = value_or_throw(storage::open_files(checkpoint->path(), inside));
  auto read = checkpoint::read_manifest(*files, inside);
  return read && read->manifest ? std::move(read->manifest->positions) : Dict();
}

Result fit_locally(const TrainFunction& function, const TrainerOptions& options, const TrainerDatasets& datasets,
                   Dict planned) {
  Current current;
  current.context.experiment_name = options.run.name.value_or("DataParallelTrainer");
  current.context.metadata = options.metadata;
  current.checkpoint = options.resume_from_checkpoint;
  current.stored_positions = positions_of(options.resume_from_checkpoint);
  WorkerDatasets shards(datasets, std::move(planned), current.context);
  current.shards = &shards;
  const auto began = std::chrono::steady_clock::now();
  Result result;
  {
    CurrentScope scope(current);
    result.return_value = function(options.config);
  }
  result.seconds = base::Seconds(std::chrono::steady_clock::now() - began).count();
  result.metrics = current.metrics;
  result.checkpoint = current.checkpoint;
  result.reports = current.reports;
  result.attempts = 1;
  return result;
}

Result fit_on_workers(const Job& job, const TrainerOptions& options) {
  auto prepared = Run::prepare(Program::instance().runtime(), make_spec(job, options));
  if (!prepared) throw ConfigError(prepared.error().message());
  Run& run = **prepared;
  control::RunEnd end;
  {
    Display display(options.run.logging_config.log_level);
    Interrupts interrupts;
    auto started = run.start();
    if (!started) throw std::runtime_error(started.error().message());
    const auto began = std::chrono::steady_clock::now();
    while (!run.finished()) {
      interrupts.pass_on(run);
      auto events = run.next(kPump);
      display.show(events, base::Seconds(std::chrono::steady_clock::now() - began).count());
    }
    end = run.wait();
    display.show_result(outcome_dict(end, run));
  }
  if (end.outcome != control::Outcome::kFinished) throw_failure(end, run.path());
  Result result = Result::from_path(run.storage_uri().empty() ? run.path() : run.storage_uri());
  result.attempts = end.attempts;
  result.seconds = end.seconds;
  result.reports = end.reports;
  // The checkpoint that the run was started from.
  if (end.checkpoint && !end.checkpoint_in_storage) result.checkpoint = Checkpoint(*end.checkpoint);
  result.return_value = std::move(end.return_value.value);
  return result;
}

}  // namespace
}  // namespace api

void init(int argc, char** argv, const InitOptions& options) { api::Program::instance().init(argc, argv, options); }

void set_capacity(const Capacity& capacity) {
  auto done =
      api::Program::instance().runtime().set_capacity({capacity.num_cpus, capacity.num_gpus, capacity.resources});
  if (!done) throw ConfigError(done.error().message());
}

void shutdown() { api::Program::instance().runtime().shutdown(); }

FunctionRegistration::FunctionRegistration(const char* name, const void* address, TrainFunction function) {
  api::Program::instance().add({name, address, std::move(function)});
}

DataParallelTrainer::DataParallelTrainer(TrainFunction function, const void* address, TrainerOptions options)
    : function_(std::move(function)), address_(address), options_(std::move(options)) {}

Result DataParallelTrainer::fit() {
  auto& program = api::Program::instance();
  if (!program.initialised())
    throw std::logic_error("call trireme::init(argc, argv) at the start of main(), before fit()");
  const api::TrainerDatasets datasets{options_.datasets, options_.dataset_config};
  return program.fit(function_, datasets, [&] {
    validate(options_.scaling);
    validate(options_.run);
    validate(options_.dataset_config);
    const int most = static_cast<int>(options_.scaling.num_workers.max);
    auto planned = api::plan_datasets(datasets, most);
    if (!planned) throw ConfigError(planned.error().message());
    if (most == 0) return api::fit_locally(function_, options_, datasets, *std::move(planned));
    // Datasets are created in main(), with functions that cannot be sent: workers run main() too.
    const auto* registered = datasets.by_name.empty() ? program.find(address_) : nullptr;
    return api::fit_on_workers(
        {registered ? registered->name : "", options_.config, program.past(), *std::move(planned)}, options_);
  });
}

bool DataParallelTrainer::can_restore(const std::string& path) {
  std::string inside;
  auto files = storage::open_files(path, inside);
  return files && control::read_run(**files, inside).ok();
}

TrainerOptions DataParallelTrainer::restored_options(const std::string& path) {
  std::string inside;
  auto files = api::value_or_throw(storage::open_files(path, inside));
  const auto record = api::value_or_throw(control::read_run(*files, inside));
  TrainerOptions options;
  options.scaling = api::value_or_throw(
      base::checked_config<ScalingConfig>(record.run.at("scaling_config").as_dict(), "scaling_config"));
  options.run =
      api::value_or_throw(base::checked_config<RunConfig>(record.run.at("run_config").as_dict(), "run_config"));
  // The folder may have been moved since. The options of a URI belong to the storage.
  const std::size_t options_begin =
      path.find("://") == std::string::npos ? path.size() : std::min(path.find('?'), path.size());
  std::string folder = path.substr(0, options_begin);
  while (folder.size() > 1 && folder.ends_with('/')) folder.pop_back();
  const std::size_t slash = folder.rfind('/');
  options.run.name = folder.substr(slash == std::string::npos ? 0 : slash + 1);
  options.run.storage_path = (slash == std::string::npos ? "." : folder.substr(0, std::max<std::size_t>(slash, 1))) +
                             path.substr(options_begin);
  options.run.resume = "must";
  // Only the names of variables are recorded; workers inherit them from this process.
  options.run.worker_runtime_env.erase("env_vars");
  options.metadata = record.run.at("metadata").as_dict();
  const Value* share = record.run.find("share_cuda_visible_devices");  // absent in runs of older versions
  options.share_cuda_visible_devices = share && share->get_if<bool>() && share->as_bool();
  return options;
}

}  // namespace trireme
