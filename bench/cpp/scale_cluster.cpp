

#include "scale_cluster.h"

#include <fmt/format.h>

#include <algorithm>
#include <condition_variable>
#include <ctime>
#include <mutex>
#include <stdexcept>

#include "base/environment.h"
#include "base/hex.h"
#include "control/controller.h"
#include "engine/remote_engine.h"
#include "storage/local_files.h"
#include "wire/secret.h"

namespace trireme::bench {
namespace {

constexpr int kReports = 200'000;
constexpr auto kPatience = std::chrono::minutes(8);

double cpu_seconds(clockid_t clock) {
  timespec time{};
  ::clock_gettime(clock, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

// Stopped on the controller's thread, and started there or before that thread.
class Stopwatch {
 public:
  explicit Stopwatch(bool on_controller)
      : cpu_(cpu_seconds(CLOCK_PROCESS_CPUTIME_ID)),
        controller_cpu_(on_controller ? cpu_seconds(CLOCK_THREAD_CPUTIME_ID) : 0),
        wall_(std::chrono::steady_clock::now()) {}
  Span span() const {
    return {cpu_seconds(CLOCK_PROCESS_CPUTIME_ID) - cpu_, cpu_seconds(CLOCK_THREAD_CPUTIME_ID) - controller_cpu_,
            base::Seconds(std::chrono::steady_clock::now() - wall_).count()};
  }

 private:
  double cpu_;
  double controller_cpu_;
  std::chrono::steady_clock::time_point wall_;
};

// Called on the controller's thread.
class Progress {
 public:
  Progress(int workers, std::int64_t reports) : workers_(workers), reports_(reports) {}

  void see(const Dict& event) {
    const std::string& kind = event["event"].as_string();
    if (kind == "run_finished") return finish(true);
    if (kind == "report") count_report();
    if (kind == "worker_failed" && !dying_) {
      dying_ = true;
      entered_ = 0;
      restarting_ = Stopwatch(true);
    }
    if (kind != "function_entered" || ++entered_ != workers_) return;
    if (!dying_) {
      cost_.start = starting_.span();
    } else {
      cost_.restart = restarting_.span();
      finish(false);
    }
  }

  void begin() { starting_ = Stopwatch(false); }

  ClusterCost wait() {
    std::unique_lock lock(mutex_);
    if (!changed_.wait_for(lock, kPatience, [&] { return done_; })) throw std::runtime_error("no end in sight");
    if (failed_) throw std::runtime_error("the run ended before its restart");
    return cost_;
  }

 private:
  void count_report() {
    if (dying_) return;
    // The first report of each worker is not measured.
    const std::int64_t half = (reports_ - workers_) / 2;
    if (++seen_ == workers_ || seen_ == workers_ + half) {
      if (seen_ > workers_) cost_.cpu_us_per_report = us_per_report(half);
      measured_ = Stopwatch(true);
    }
    if (seen_ == reports_) cost_.cpu_us_per_report_alone = us_per_report(half);
  }
  double us_per_report(std::int64_t reports) const {
    return measured_.span().cpu_s / static_cast<double>(reports) * 1e6;
  }
  void finish(bool failed) {
    std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    failed_ = failed;
    changed_.notify_all();
  }

  const int workers_;
  const std::int64_t reports_;
  int entered_ = 0;
  std::int64_t seen_ = 0;
  bool dying_ = false;
  Stopwatch starting_{true};
  Stopwatch measured_{true};
  Stopwatch restarting_{true};
  ClusterCost cost_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool failed_ = false;
};

control::RunPlan plan_for(const Cluster& cluster, const std::string& folder, const wire::Address& listen) {
  control::RunPlan plan;
  plan.name = "scale";
  plan.id = base::to_hex(wire::random_bytes(6));
  plan.path = folder;
  plan.files = std::make_shared<storage::LocalFiles>();
  plan.storage_path = folder;
  plan.trainer = "DataParallelTrainer";
  plan.secret = wire::random_bytes(wire::kSecretSize);
  plan.listen = listen;
  plan.gang.run_name = plan.name;
  plan.gang.bundles.assign(static_cast<std::size_t>(cluster.workers()), {{"CPU", 1}});
  plan.rules.num_workers = cluster.workers();
  plan.rules.max_failures = 1;
  plan.rules.warm_restart = true;
  plan.rules.start_timeout_s = 600;
  plan.rules.cancel_timeout_s = 60;
  plan.workers_here = false;
  plan.payload.data.assign(4000, 'x');                                // a pickled function
  plan.heartbeat_s = 0.3 * std::max(1.0, cluster.workers() / 500.0);  // as in api::Run
  plan.heartbeat_timeout_s = 600;                                     // players may be delayed on a busy machine
  plan.make_process = [env = base::environment()](int rank, int, const engine::Slot&, std::string ticket,
                                                  std::string log_path) {
    engine::ProcessSpec spec;
    spec.label = fmt::format("rank {}", rank);
    spec.argv = {"python3", "-m", "trireme._worker"};
    spec.env = env;
    spec.cwd = "/";
    spec.log_path = std::move(log_path);
    spec.ticket = std::move(ticket);
    spec.python = engine::PythonStart();
    return spec;
  };
  plan.log_tail = [](const std::string&) { return std::vector<std::string>(); };
  return plan;
}

}  // namespace

ClusterCost run_cluster(const Cluster& cluster, const std::string& program, const std::string& folder) {
  const int reports_each = std::max(5, kReports / cluster.workers()) + 1;
  engine::RemoteEngineOptions options;
  options.name = "bench";
  options.adapter = {program,
                     "--adapter",
                     std::to_string(cluster.agents),
                     std::to_string(cluster.workers_each),
                     std::to_string(cluster.direct),
                     std::to_string(reports_each)};
  options.options = Dict{{"node_timeout_s", 300.0}, {"lease_s", 300.0}, {"agent_timeout_s", 300.0}};
  options.agent = {"python3", "-m", "trireme._cli", "agent"};
  options.state_dir = folder;
  const Stopwatch joining(true);
  auto engine = engine::RemoteEngine::start(std::move(options));
  if (!engine) throw std::runtime_error(engine.error().message());
  const auto nodes = (*engine)->nodes();
  if (nodes.size() != static_cast<std::size_t>(cluster.agents)) {
    throw std::runtime_error(fmt::format("{} of {} agents have joined", nodes.size(), cluster.agents));
  }
  const Span join = joining.span();
  const base::SystemClock clock;
  Progress progress(cluster.workers(), static_cast<std::int64_t>(cluster.workers()) * reports_each);
  control::Controller controller(plan_for(cluster, folder, *(*engine)->listen_address()), **engine, clock,
                                 [&](const Dict& event) { progress.see(event); });
  progress.begin();
  if (auto started = controller.start(); !started) throw std::runtime_error(started.error().message());
  ClusterCost cost = progress.wait();
  cost.join = join;
  controller.stop("measured", true);
  controller.wait();
  return cost;
}

}  // namespace trireme::bench
