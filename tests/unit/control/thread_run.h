#pragma once

#include "base/hex.h"
#include "checkpoint/commit.h"
#include "control/controller.h"
#include "control/run_folder.h"
#include "storage/local_files.h"
#include "unit/control/thread_engine.h"
#include "unit/engine/testing.h"
#include "unit/temp_dir.h"
#include "wire/client.h"
#include "wire/secret.h"
#include "worker/session.h"

// A complete run whose workers are threads: controller, sockets and sessions are real.

namespace trireme::control::testing {

inline constexpr base::Seconds kPatience{300.0};
inline constexpr engine::ExitStatus kEnded{engine::ExitStatus::Kind::kCode, 0};
inline constexpr engine::ExitStatus kFailedExit{engine::ExitStatus::Kind::kCode, 1};
inline constexpr engine::ExitStatus kSegmentationFault{engine::ExitStatus::Kind::kSignal, 11};

// The work of a rank between its start and its end. With a status it dies with it; without one it returns "value of N".
using Work = std::function<std::optional<engine::ExitStatus>(worker::Session&)>;

inline base::Result<std::unique_ptr<worker::Session>> join_as(const RankProcess& process) {
  TRIREME_ASSIGN(auto ticket, worker::parse_ticket(process.ticket));
  return worker::Session::join(ticket, [](const std::string&) {});
}

inline ThreadEngine::Body workers(Work work) {
  return [work = std::move(work)](const RankProcess& process) -> engine::ExitStatus {
    auto session = join_as(process);
    if (!session) return kFailedExit;
    worker::Session& joined = **session;
    if (!joined.wait_start()) return kFailedExit;
    joined.entered();
    if (auto status = work(joined)) return *status;
    const bool finished = joined.finish("value of " + std::to_string(joined.start().world_rank), false).ok();
    return finished ? kEnded : kFailedExit;
  };
}

// A folder with one file as this rank's part of a checkpoint.
inline worker::CheckpointSource part_of(worker::Session& session,
                                        CheckpointUploadMode mode = CheckpointUploadMode::kSync) {
  const auto& start = session.start();
  const std::string folder = fmt::format("{}/mine_{}", start.path, start.world_rank);
  std::filesystem::remove_all(folder);
  tests::append_file(fmt::format("{}/rank_{}", folder, start.world_rank), "weights");
  return {.folder = folder, .mode = mode};
}

inline engine::ExitStatus raise(worker::Session& session, const std::string& message) {
  wire::Failed failure;
  failure.error_type = "ValueError";
  failure.message = message;
  failure.traceback = "Traceback";
  session.fail(failure);
  return kFailedExit;
}

class ThreadRun {
 public:
  ThreadRun(int num_workers, ThreadEngine::Body body) : engine_(std::move(body)) {
    plan_.name = "test";
    plan_.id = base::to_hex(wire::random_bytes(6));
    plan_.path = dir_.path();
    plan_.files = std::make_shared<storage::LocalFiles>();
    plan_.storage_path = dir_.path();
    plan_.trainer = "TestTrainer";
    plan_.secret = wire::random_bytes(wire::kSecretSize);
    plan_.listen.name = "trireme-test-" + plan_.id;
    plan_.gang.bundles.assign(static_cast<std::size_t>(num_workers), Resources{{"CPU", 1}});
    plan_.rules.num_workers = num_workers;
    // Silence is never intended unless a test sets it, and the machine may be busy.
    plan_.heartbeat_timeout_s = 60.0;
    plan_.payload = Bytes{"payload"};
    plan_.make_process = [](int, int, const engine::Slot&, std::string ticket, std::string log) {
      engine::ProcessSpec process;
      process.ticket = std::move(ticket);
      process.log_path = std::move(log);
      return process;
    };
    plan_.log_tail = [](const std::string& path) { return std::vector<std::string>{"last line of " + path}; };
  }
  // Sessions of killed ranks end with their connection, so the controller is destroyed before the engine joins its
  // threads.
  ~ThreadRun() { controller_.reset(); }

  RunPlan& plan() { return plan_; }
  ThreadEngine& engine() { return engine_; }
  Controller& controller() { return *controller_; }
  const tests::TempDir& dir() const { return dir_; }
  // Call it before the start. The clock must outlive the run.
  void set_clock(const base::Clock& clock) { clock_ = &clock; }

  void start() {
    tests::append_file(dir_ / "run.json", R"({"format":1,"name":"test"})");
    tests::append_file(dir_ / checkpoint::kMarkerName, plan_.id);
    controller_.emplace(plan_, engine_, *clock_, [this](const Dict& event) {
      const std::lock_guard lock(mutex_);
      events_.push_back(event);
    });
    auto started = controller_->start();
    REQUIRE_MESSAGE(started, (started ? "" : started.error().message()));
  }
  RunEnd wait() {
    REQUIRE(engine::testing::eventually([&] { return controller_->finished(); }));
    return controller_->wait();
  }
  RunEnd go() {
    start();
    return wait();
  }
  // Stops the run at once if it is still running.
  void abandon() { controller_.reset(); }

  std::vector<Dict> events(const std::string& kind = "") {
    const std::lock_guard lock(mutex_);
    std::vector<Dict> found;
    for (const auto& event : events_) {
      if (kind.empty() || event["event"].as_string() == kind) found.push_back(event);
    }
    return found;
  }
  bool wait_for(const std::string& kind, std::size_t count = 1) {
    return engine::testing::eventually([&] { return events(kind).size() >= count; });
  }
  // Read from the file.
  std::vector<Dict> logged() {
    auto record = read_run(dir_.path());
    REQUIRE(record);
    CHECK_FALSE(record->torn);
    return record->events;
  }

 private:
  tests::TempDir dir_;
  base::SystemClock system_clock_;
  const base::Clock* clock_ = &system_clock_;
  std::mutex mutex_;
  std::vector<Dict> events_;
  RunPlan plan_;
  ThreadEngine engine_;
  std::optional<Controller> controller_;
};

}  // namespace trireme::control::testing
