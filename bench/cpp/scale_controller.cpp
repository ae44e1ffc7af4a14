#include <unistd.h>

#include <ctime>
#include <fstream>
#include <mutex>
#include <stdexcept>

#include "control/controller.h"
#include "scale.h"

namespace trireme::bench {
namespace {

// Grants every reservation and gives every bundle a process number; starts no processes.
class PretendedEngine final : public engine::Engine {
 public:
  base::Result<void> check(const engine::GangRequest&) const override { return {}; }

  engine::GangId reserve(engine::GangRequest request, engine::EventHandler handler) override {
    handler_ = std::move(handler);
    engine::Reserved reserved{.gang = 1, .slots = {}};
    for (auto& bundle : request.bundles) {
      reserved.slots.push_back({.node_id = "node", .host = "host", .resources = std::move(bundle), .gpus = {}});
    }
    handler_(std::move(reserved));
    return 1;
  }
  void release(engine::GangId) override {}
  void start(engine::GangId gang, int bundle, engine::ProcessSpec) override {
    handler_(engine::Started{.gang = gang, .bundle = bundle, .pid = bundle + 1, .forked = true});
  }
  void kill(engine::GangId gang, int bundle, base::Seconds) override {
    handler_(engine::Exited{.gang = gang, .bundle = bundle, .pid = bundle + 1, .status = {}});
  }
  std::vector<engine::NodeInfo> nodes() const override { return {}; }

 private:
  engine::EventHandler handler_;
};

double thread_cpu_seconds() {
  timespec time{};
  ::clock_gettime(CLOCK_THREAD_CPUTIME_ID, &time);
  return static_cast<double>(time.tv_sec) + static_cast<double>(time.tv_nsec) * 1e-9;
}

double resident_bytes() {
  std::ifstream file("/proc/self/statm");
  double total = 0;
  double resident = 0;
  file >> total >> resident;
  return resident * static_cast<double>(::sysconf(_SC_PAGESIZE));
}

// Called on the controller's thread, so the thread's CPU clock is the controller's.
class Stopwatch {
 public:
  Stopwatch(std::int64_t skip, std::int64_t total) : skip_(skip), total_(total) {}

  void see(const Dict& event) {
    const std::string& kind = event["event"].as_string();
    if (kind == "run_finished" || kind == "worker_failed") finish(true);
    if (kind != "report") return;
    ++seen_;
    if (seen_ == skip_) {
      cpu_ = thread_cpu_seconds();
      wall_ = std::chrono::steady_clock::now();
    } else if (seen_ == total_) {
      cpu_ = thread_cpu_seconds() - cpu_;
      seconds_ = base::Seconds(std::chrono::steady_clock::now() - wall_).count();
      finish(false);
    }
  }

  Cost wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    if (failed_) throw std::runtime_error("the run ended before all reports arrived");
    const auto measured = static_cast<double>(total_ - skip_);
    return {
        .cpu_us_per_report = cpu_ / measured * 1e6, .reports_per_second = measured / seconds_, .bytes_per_worker = 0};
  }

 private:
  void finish(bool failed) {
    std::lock_guard lock(mutex_);
    if (done_) return;
    done_ = true;
    failed_ = failed;
    changed_.notify_all();
  }

  std::int64_t skip_;
  std::int64_t total_;
  std::int64_t seen_ = 0;
  double cpu_ = 0;
  double seconds_ = 0;
  base::MonotonicTime wall_;
  std::mutex mutex_;
  std::condition_variable changed_;
  bool done_ = false;
  bool failed_ = false;
};

control::RunPlan plan_for(const Crowd& crowd, const std::string& folder) {
  control::RunPlan plan;
  plan.name = "scale";
  plan.id = crowd.run_id;
  plan.path = folder;
  plan.trainer = "DataParallelTrainer";
  plan.secret = crowd.secret;
  plan.listen = crowd.address;
  plan.gang.bundles.assign(static_cast<std::size_t>(crowd.workers), {{"CPU", 1}});
  plan.rules.num_workers = crowd.workers;
  plan.payload.data.assign(4000, 'x');  // a pickled function
  plan.heartbeat_s = crowd.heartbeat_s;
  // The players may be delayed on a busy machine, which is not measured.
  plan.heartbeat_timeout_s = 600;
  plan.make_process = [](int, int, const engine::Slot&, std::string, std::string) { return engine::ProcessSpec(); };
  plan.log_tail = [](const std::string&) { return std::vector<std::string>(); };
  return plan;
}

}  // namespace

Cost run_controller(const Crowd& crowd, const std::string& folder, void (*listening)()) {
  PretendedEngine engine;
  const base::SystemClock clock;
  Stopwatch stopwatch(crowd.workers, static_cast<std::int64_t>(crowd.workers) * crowd.reports_each);
  const double before = resident_bytes();
  control::Controller controller(plan_for(crowd, folder), engine, clock,
                                 [&](const Dict& event) { stopwatch.see(event); });
  if (auto started = controller.start(); !started) throw std::runtime_error(started.error().message());
  listening();
  Cost cost = stopwatch.wait();
  cost.bytes_per_worker = (resident_bytes() - before) / crowd.workers;
  controller.stop("measured", true);
  controller.wait();
  return cost;
}

}  // namespace trireme::bench
