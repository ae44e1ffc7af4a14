// Process groups when a rank is lost, and their timeouts:
//   lost FAULT: rank 1 breaks while rank 0 waits for it in a process group that fails like NCCL
//   timeout: rank 0 waits in a process group for a rank that does not come, and handles the error
//   away: it does not handle the error

#include <signal.h>
#include <unistd.h>

#include <cstdio>
#include <string>
#include <thread>
#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroup.hpp>

#include "../nccl_like.h"
#include "cases.h"

namespace cases::cancel {
namespace {

void all_reduce(c10d::ProcessGroup& group) {
  std::vector<at::Tensor> tensors{at::ones({1})};
  group.allreduce(tensors)->wait();
}

c10::intrusive_ptr<c10d::ProcessGroup> new_nccl_like_group() {
  const auto& context = trireme::context();
  const auto store = c10::make_intrusive<c10d::PrefixStore>("like", trireme::torch::store());
  auto group = c10::make_intrusive<c10d::ProcessGroup>(store, context.world_rank, context.world_size);
  group->setBackend(
      c10::DeviceType::CPU, c10d::ProcessGroup::BackendType::CUSTOM,
      c10::make_intrusive<nccl_like::Backend>(store, context.world_rank, context.world_size, nccl_like::Faults{}));
  group->setDefaultBackend(c10d::ProcessGroup::BackendType::CUSTOM);
  trireme::torch::abort_on_cancel(group);
  return group;
}

void break_down(const std::string& fault) {
  if (fault == "kill") ::kill(::getpid(), SIGKILL);
  if (fault == "throw") throw std::runtime_error("broken");
  while (true) std::this_thread::sleep_for(std::chrono::milliseconds(10));  // hang
}

trireme::Value lose(const trireme::Config& config) {
  static int calls = 0;
  ++calls;
  const std::string told = config["interrupt"].as_string();
  trireme::on_interrupt([told] {
    if (told == "throws") throw std::runtime_error("the device is unusable");
  });
  const auto group = new_nccl_like_group();
  const bool first = trireme::context().attempt == 0;
  for (int step = 0; step < 3; ++step) {
    all_reduce(*group);
    if (first && trireme::context().world_rank == 1) break_down(config["fault"].as_string());
    trireme::report({{"step", step}});
  }
  return std::to_string(calls);
}
TRIREME_TRAIN_FUNCTION(lose);

trireme::Value time_out() {
  const auto group = trireme::torch::new_process_group({.timeout_s = 0.5});
  std::string error;
  if (trireme::context().world_rank == 0) {
    try {
      all_reduce(*group);
    } catch (const std::exception& thrown) {
      error = thrown.what();
    }
    trireme::store::set("timed out", error);
  }
  return trireme::store::get("timed out");
}
TRIREME_TRAIN_FUNCTION(time_out);

trireme::Value stay_away() {
  const auto group = trireme::torch::new_process_group({.timeout_s = 2.0});
  all_reduce(*group);
  if (trireme::context().world_rank == 1) break_down("hang");
  all_reduce(*group);
  return "";
}
TRIREME_TRAIN_FUNCTION(stay_away);

template <typename F>
int fit(F function, const trireme::TrainerOptions& options) {
  const auto result = trireme::DataParallelTrainer(function, options).fit();
  std::printf("RETURNED %s\n", result.return_value.as_string().c_str());
  return 0;
}

}  // namespace

int start(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::string what = argc > 2 ? argv[2] : "";
  trireme::TrainerOptions options;
  options.scaling.num_workers = 2;
  options.run.name = "run";
  if (what == "away") return fit(stay_away, options);
  if (what == "timeout") return fit(time_out, options);
  expect(what == "lost" && argc == 5, "lost FAULT INTERRUPT");
  const std::string fault = argv[3];
  options.config = {{"fault", fault}, {"interrupt", argv[4]}};
  auto& failure = options.run.failure_config;
  failure.max_failures = 1;
  failure.cancel_timeout_s = 30;  // nothing but an abort ends the survivor's collective before
  if (fault == "hang") failure.hang_timeout_s = 5;
  failure.on_hang = "restart";
  return fit(lose, options);
}

}  // namespace cases::cancel
