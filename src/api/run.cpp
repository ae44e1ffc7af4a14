#include "api/run.h"

#include <unistd.h>

#include <cmath>
#include <cstdlib>

#include "base/config_fields.h"
#include "base/dict_fields.h"
#include "base/hex.h"
#include "base/host.h"
#include "base/json.h"
#include "base/log.h"
#include "base/text.h"
#include "checkpoint/scratch_folder.h"
#include "checkpoint/shared_download.h"
#include "control/failure_policy.h"
#include "engine/resources.h"
#include "storage/code_tree.h"
#include "wire/frame.h"
#include "wire/secret.h"

namespace trireme::api {
namespace {

// How often the logs of workers are read while there are no events.
constexpr base::Seconds kLogPeriod{0.05};
constexpr std::size_t kLogTailLines = 20;

double from_environment(const char* name, double standard) {
  const char* text = std::getenv(name);
  char* end = nullptr;
  double value = text ? std::strtod(text, &end) : 0;
  return text && end != text && value > 0 ? value : standard;
}

}  // namespace

Dict outcome_dict(const control::RunEnd& end, const Run& run) {
  const std::string& storage_path = run.storage_path();
  Dict outcome{{"outcome", control::to_string(end.outcome)}, {"path", run.path()}, {"storage_path", storage_path}};
  if (!run.files().local()) outcome["storage"] = run.files().describe(storage_path);
  outcome["seconds"] = end.seconds;
  outcome["error"] = end.error.empty() ? Value() : Value(end.error);
  outcome["note"] = end.note;
  List failures;
  for (const auto& failure : end.failures) {
    Dict told = control::to_dict(failure);
    told["attempt"] = end.last_attempt;
    told["exception"] = failure.exception ? Value(*failure.exception) : Value();
    failures.push_back(std::move(told));
  }
  outcome["failures"] = std::move(failures);
  outcome["return_value"] = end.return_value.value;
  outcome["return_value_pickled"] = end.return_value.pickled;
  outcome["metrics"] = end.metrics ? Value(*end.metrics) : Value();
  outcome["checkpoint"] = end.checkpoint ? Value(*end.checkpoint) : Value();
  outcome["checkpoint_in_storage"] = end.checkpoint_in_storage;
  outcome["checkpoints"] = control::to_list(end.checkpoints, storage_path);
  outcome["attempts"] = end.attempts;
  outcome["reports"] = end.reports;
  return outcome;
}

Run::Run(Runtime& runtime, engine::Engine& engine, RunSpec spec, std::shared_ptr<storage::Files> files)
    : runtime_(runtime),
      engine_(engine),
      spec_(std::move(spec)),
      folder_(static_cast<int>(spec_.scaling.num_workers.max)) {
  plan_.files = std::move(files);
}

Run::~Run() { close(); }

void Run::close() {
  if (lease_) lease_->on_lost(nullptr);
  controller_.reset();
  // The entry is only for the command line; the secret of a finished run must not stay there.
  if (registered_) (void)registry_.finish_run(plan_.id).ok();
  registered_ = false;
  if (plan_.files && !plan_.files->local()) {
    // What killed workers left behind; it may be long before another run removes it.
    checkpoint::ScratchFolder::remove_abandoned();
    checkpoint::SharedDownload::remove_abandoned();
  }
  lease_.reset();
  lock_.reset();
}

base::Result<std::unique_ptr<Run>> Run::prepare(Runtime& runtime, RunSpec spec, std::shared_ptr<storage::Files> files) {
  if (auto problem = base::find_problem(spec.scaling)) return base::Error(*problem);
  if (auto problem = base::find_problem(spec.run)) return base::Error(*problem);
  const auto& checkpoints = spec.run.checkpoint_config;
  if (!spec.owns_loop && (checkpoints.checkpoint_frequency > 0 || checkpoints.checkpoint_at_end)) {
    return base::error(
        "CheckpointConfig.{} is for trainers with their own training loop; {} runs your function, which saves a "
        "checkpoint when it passes one to report()",
        checkpoints.checkpoint_frequency > 0 ? "checkpoint_frequency" : "checkpoint_at_end", spec.trainer);
  }
  // The rest of the start message is small: names, ranks, resources.
  const std::size_t size = spec.payload.data.size() + base::to_json(spec.metadata).size();
  if (size + (std::size_t{1} << 20) > wire::kControllerFrameLimit) {
    return base::error(
        "the training function, its configuration and what it has captured take {} bytes, over the limit of {}: load "
        "data in the function instead of capturing it",
        size, wire::kControllerFrameLimit);
  }
  TRIREME_ASSIGN(auto* engine, runtime.engine());
  base::set_log_level(spec.run.logging_config.log_level);
  TRIREME_TRY(control::make_state_dir());
  std::unique_ptr<Run> run(new Run(runtime, *engine, std::move(spec), std::move(files)));
  run->plan_.id = base::to_hex(wire::random_bytes(6));
  run->plan_.secret = wire::random_bytes(wire::kSecretSize);
  run->plan_.trainer = run->spec_.trainer;
  run->plan_.metadata = run->spec_.metadata;
  TRIREME_TRY(run->plan_gang());
  TRIREME_TRY(run->plan_folder());
  TRIREME_TRY(run->plan_resume());
  if (!run->plan_.workers_here) TRIREME_TRY(run->plan_code());
  TRIREME_TRY(run->write_run_file());
  return run;
}

base::Result<void> Run::plan_gang() {
  const ScalingConfig& scaling = spec_.scaling;
  engine::GangRequest& gang = plan_.gang;
  TRIREME_ASSIGN(gang.strategy, engine::parse_strategy(scaling.placement_strategy));
  gang.trainer = engine::trainer_bundle(scaling);
  gang.accelerator_type = scaling.accelerator_type;
  gang.label_selector = scaling.label_selector.value_or(Labels());
  gang.timeout = base::Seconds(spec_.run.start_timeout_s);
  // An elastic run starts with as many workers as the capacity allows.
  for (std::int64_t count = scaling.num_workers.max;; --count) {
    gang.bundles.assign(static_cast<std::size_t>(count), engine::worker_bundle(scaling));
    auto checked = engine_.check(gang);
    if (checked) break;
    if (count <= scaling.num_workers.min && engine_.may_add_nodes()) break;  // the cluster decides
    if (count <= scaling.num_workers.min) return checked;
  }
  control::Rules& rules = plan_.rules;
  rules.num_workers = static_cast<int>(gang.bundles.size());
  rules.checkpoints = spec_.run.checkpoint_config;
  rules.min_workers = static_cast<int>(scaling.num_workers.min);
  rules.max_workers = static_cast<int>(scaling.num_workers.max);
  rules.resize_interval_s = scaling.elastic_resize_monitor_interval_s;
  const FailureConfig& failures = spec_.run.failure_config;
  rules.max_failures = failures.max_failures;
  rules.start_limit = failures.controller_failure_limit;
  rules.max_preemptions = failures.max_preemption_failures;
  rules.repeated_error_limit = failures.repeated_error_limit;
  rules.warm_restart = failures.warm_restart;
  rules.share_cuda_visible_devices = spec_.share_cuda_visible_devices;
  rules.cancel_timeout_s = failures.cancel_timeout_s;
  rules.backoff_s = failures.restart_backoff_s;
  rules.max_backoff_s = failures.max_restart_backoff_s;
  rules.on_hang = failures.on_hang;
  rules.preemption_grace_s = failures.preemption_grace_s;
  plan_.hang_timeout_s = failures.hang_timeout_s.value_or(0.0);
  rules.start_timeout_s = spec_.run.start_timeout_s;
  rules.stop_grace_s = spec_.run.stop_grace_s;

  plan_.listen.name = fmt::format("trireme-{}-{}", plan_.id, base::to_hex(wire::random_bytes(8)));
  const auto remote = engine_.listen_address();
  if (remote) plan_.listen = *remote;
  plan_.workers_here = !remote;
  if (const char* listen = std::getenv("TRIREME_LISTEN")) {
    TRIREME_ASSIGN(plan_.listen, wire::parse_address(listen), "TRIREME_LISTEN");
  }
  // With many workers heartbeats are less frequent, which leaves the controller's time for reports.
  const double crowd = std::max(1.0, rules.num_workers / 500.0);
  plan_.heartbeat_s = from_environment("TRIREME_HEARTBEAT_S", 0.3) * crowd;
  // The agents find out sooner when a node is lost. A worker that only starves for CPU cannot be seen from here.
  const double silence_s = remote ? std::max(10.0, 4.0 * plan_.heartbeat_s) : 4.0 * plan_.heartbeat_s;
  plan_.heartbeat_timeout_s = from_environment("TRIREME_HEARTBEAT_TIMEOUT_S", silence_s);
  plan_.lease_s = from_environment("TRIREME_LEASE_S", remote ? 15.0 : 30.0);
  return {};
}

// For nodes that do not share this machine's file system.
base::Result<void> Run::plan_code() {
  plan_.folder = spec_.cwd;
  for (const auto& path : spec_.code) {
    TRIREME_ASSIGN(const auto tree, storage::read_code(path), "RunConfig.worker_runtime_env");
    plan_.code[path] = tree.digest;
  }
  const std::string& script = spec_.script_folder;
  if (script.empty() || plan_.code.contains(script)) return {};
  const auto tree = storage::read_code(script);
  if (tree) {
    plan_.code[script] = tree->digest;
  } else {
    plan_.warnings.push_back(fmt::format(
        "the script's folder is not sent to nodes: {}; nodes that do not see it need worker_runtime_env['working_dir'] "
        "or ['py_modules']",
        tree.error().message()));
  }
  return {};
}

base::Result<void> Run::start() {
  Dict& started = plan_.started;
  started["pid"] = ::getpid();
  started["host"] = base::host_name();
  started["version"] = TRIREME_VERSION;
  if (engine_.listen_address()) started["engine"] = engine_.name();
  started["trainer"] = plan_.trainer;
  started["num_workers"] = plan_.rules.num_workers;
  started["resources_per_worker"] = base::Codec<Resources>::to(engine::worker_bundle(spec_.scaling));
  started["resumed"] = resumed_;
  if (plan_.reports.count() > 0) started["reports"] = plan_.reports.count();
  if (plan_.checkpoint) started["checkpoint"] = *plan_.checkpoint;
  if (!plan_.files->local()) started["storage"] = plan_.files->describe(plan_.storage_path);
  started["logged_datasets"] = base::Codec<std::vector<std::string>>::to(spec_.logged_datasets);
  plan_.payload = std::move(spec_.payload);
  plan_.make_process = [this](int rank, int, const engine::Slot& slot, std::string ticket, std::string log) {
    return make_process(rank, slot, std::move(ticket), std::move(log));
  };
  plan_.set_capacity = [this](const wire::SetCapacity& asked) {
    return runtime_.set_capacity({asked.num_cpus, asked.num_gpus, asked.resources});
  };
  plan_.log_tail = [](const std::string& path) { return last_lines(path, kLogTailLines); };
  controller_ = std::make_unique<control::Controller>(plan_, engine_, runtime_.clock(),
                                                      [this](const Dict& event) { take(event); });
  TRIREME_TRY(controller_->start());
  if (lease_) {
    lease_->on_lost([this](std::string why) { controller_->stop(std::move(why), true); });
  }
  if (auto warning = engine::oversubscription_warning(plan_.gang, engine_.nodes())) {
    controller_->warn(*std::move(warning));
  }
  control::RunEntry entry;
  entry.id = plan_.id;
  entry.name = plan_.name;
  entry.path = plan_.path;
  entry.host = base::host_name();
  entry.process_table = base::process_table();
  entry.pid = ::getpid();
  entry.pid_start = control::process_start(entry.pid).value_or(0);
  entry.started = runtime_.clock().wall();
  entry.address = controller_->address().text();
  entry.secret = base::to_hex(plan_.secret);
  TRIREME_TRY(registry_.register_run(entry), "the run could not be registered for the command line");
  registered_ = true;
  return {};
}

engine::ProcessSpec Run::make_process(int rank, const engine::Slot& slot, std::string ticket,
                                      std::string log_path) const {
  engine::ProcessSpec process;
  process.label = fmt::format("rank {}", rank);
  process.argv = spec_.argv;
  process.env = spec_.env;
  process.cwd = spec_.cwd;
  process.log_path = std::move(log_path);
  process.ticket = std::move(ticket);
  process.python = spec_.python;
  process.env["TRIREME_WORKER"] = "1";
  auto cpus = slot.resources.find("CPU");
  const int threads = cpus == slot.resources.end() ? 1 : std::max(1, static_cast<int>(std::floor(cpus->second)));
  // The user's own value takes precedence.
  process.env.try_emplace("OMP_NUM_THREADS", std::to_string(threads));
  return process;
}

// On the controller's thread.
void Run::take(const Dict& event) {
  const std::string& kind = event["event"].as_string();
  std::lock_guard lock(mutex_);
  if (kind == "report" && !spec_.every_report) {
    const bool further = reports_.add(base::int_of(event, "attempt"), base::int_of(event, "index"));
    if (base::int_of(event, "rank") == 0) latest_ = event;
    else if (further) furthest_ = event;
    return;  // not urgent: next() returns it when it reads the logs
  }
  events_.push_back(event);
  if (kind == "run_finished") over_ = true;
  changed_.notify_all();
}

std::vector<Dict> Run::next(base::Seconds timeout) {
  std::vector<Dict> out;
  if (!controller_) return out;
  const auto deadline = runtime_.clock().now() + base::nanoseconds(timeout);
  while (true) {
    bool over = false;
    {
      std::unique_lock lock(mutex_);
      changed_.wait_for(lock, std::min(timeout, kLogPeriod), [&] { return !events_.empty() || over_; });
      out.assign(std::make_move_iterator(events_.begin()), std::make_move_iterator(events_.end()));
      events_.clear();
      for (auto* newest : {&furthest_, &latest_}) {
        if (*newest) out.push_back(*std::exchange(*newest, std::nullopt));
      }
      over = over_;
    }
    for (const auto& event : out) {
      const std::string kind = base::text_of(event, "event");
      if (spec_.run.logging_config.worker_output && (kind == "worker_started" || kind == "worker_kept")) {
        int rank = static_cast<int>(base::int_of(event, "rank"));
        int attempt = static_cast<int>(base::int_of(event, "attempt"));
        follower_.follow(rank, control::log_path(plan_.path, attempt, rank));
      }
    }
    if (over) controller_->wait();  // returns soon: the controller ends after this event
    read_logs(out, over);
    if (!out.empty() || over || runtime_.clock().now() >= deadline) return out;
  }
}

void Run::read_logs(std::vector<Dict>& out, bool last) {
  if (drained_) return;
  const auto now = runtime_.clock().now();
  for (auto& line : last ? follower_.finish() : follower_.poll(now)) folder_.feed(line.rank, line.line, now);
  std::vector<Dict> lines;
  for (auto& output : last ? folder_.finish() : folder_.flush(now)) {
    Dict line{{"event", "output"}, {"line", output.line}, {"repeats", output.repeats}};
    line["ranks"] = List(output.ranks.begin(), output.ranks.end());
    lines.push_back(std::move(line));
  }
  // The output of workers comes after the events of the run's start, and before those of the workers' end.
  const auto place = std::find_if(out.begin(), out.end(), [](const Dict& event) {
    const std::string kind = base::text_of(event, "event");
    return kind != "run_started" && kind != "warning";
  });
  out.insert(place, std::make_move_iterator(lines.begin()), std::make_move_iterator(lines.end()));
  drained_ = last;
}

bool Run::finished() {
  std::lock_guard lock(mutex_);
  return (drained_ && events_.empty()) || (controller_ && controller_->finished() && !over_);
}

void Run::stop(std::string why, bool hard) {
  if (controller_) controller_->stop(std::move(why), hard);
}

void Run::announce_preemption(std::vector<int> ranks, std::optional<double> seconds, std::string why) {
  if (controller_) controller_->announce_preemption({std::move(ranks), seconds, std::move(why)});
}

void Run::finish_validation(control::ValidationEnded ended) {
  if (controller_) controller_->finish_validation(std::move(ended));
}

control::RunEnd Run::wait() {
  TRIREME_CHECK(controller_, "the run was not started, or is closed");
  auto end = controller_->wait();
  remove_half_written();  // no process of the run writes any more
  return end;
}

}  // namespace trireme::api
