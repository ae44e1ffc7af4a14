// Checkpoints of a model on a device: snapshots copy each tensor once, on a separate stream, and wait once.

#include <trireme/checkpoint.h>
#include <trireme/torch/state.h>
#include <trireme/torch/torch.h>
#include <trireme/torch/transfer.h>
#include <trireme/trireme.h>

#include <cstdio>
#include <thread>

#include "fake_gpu.h"

namespace {

const c10::Device kDevice(c10::DeviceType::PrivateUse1, 0);
constexpr int kSteps = 4;

// Not moved with to(), which libtorch does not support for this kind of device.
struct Net : torch::nn::Module {
  explicit Net(c10::Device device)
      : weight(register_parameter("weight", torch::zeros({64, 32}).to(device))),
        bias(register_parameter("bias", torch::zeros({64}).to(device))) {}

  at::Tensor weight, bias;
};

bool expect(bool right, const char* what) {
  if (!right) std::printf("not right: %s\n", what);
  return right;
}

// Opens the gate when the program waits for the device: without the wait for the training's stream, the copies would
// be done before that.
class Opener {
 public:
  Opener() : waits_(fake_gpu_counts().waits) {}

 private:
  std::int64_t waits_;
  std::jthread thread_{[this] {
    fake_gpu_await_waits(waits_ + 1);
    fake_gpu_open_gate();
  }};
};

bool report(const Net& model, int step, trireme::CheckpointUploadMode mode) {
  const torch::NoGradGuard no_grad;
  fake_gpu_close_gate();
  model.weight.fill_(step);
  model.bias.fill_(-step);
  const FakeGpuCounts before = fake_gpu_counts();
  {
    const Opener opener;
    trireme::report({{"step", step}}, trireme::torch::save(model), {.checkpoint_upload_mode = mode});
  }
  const FakeGpuCounts after = fake_gpu_counts();
  const bool async = mode == trireme::CheckpointUploadMode::kAsync;
  return expect(after.copies_to_host - before.copies_to_host == 2, "one copy of each tensor") &&
         expect(after.copies_on_first_stream == before.copies_on_first_stream, "on a separate stream") &&
         expect(!async || after.copies_to_pageable == before.copies_to_pageable, "to registered memory") &&
         expect(!async || after.waits - before.waits == 1, "one wait");
}

bool transfer() {
  const FakeGpuCounts before = fake_gpu_counts();
  trireme::torch::detail::Transfer transfer(kDevice, true);
  at::Tensor batch = at::arange(6).to(at::kFloat);
  transfer.begin(batch);
  transfer.end(batch);
  return expect(batch.device().type() == kDevice.type(), "the batch is on the device") &&
         expect(batch.cpu().equal(at::arange(6).to(at::kFloat)), "with its values") &&
         expect(fake_gpu_counts().recorded == before.recorded + 1, "its memory is protected");
}

trireme::Value train() {
  const Net model(kDevice);
  bool right = transfer();
  for (int step = 0; step < kSteps; ++step) {
    right = report(model, step, trireme::CheckpointUploadMode::kAsync) && right;
  }
  right = expect(fake_gpu_counts().registered == 1, "the memory is registered once") && right;
  return report(model, kSteps, trireme::CheckpointUploadMode::kSync) && right;
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  c10::register_privateuse1_backend("fakegpu");  // libtorch has an accelerator when it has a name
  trireme::init(argc, argv);
  trireme::TrainerOptions options{.scaling = {.num_workers = 1}};
  options.run.checkpoint_config.max_uploads_in_flight = 1;
  const auto result = trireme::DataParallelTrainer(train, options).fit();
  if (!result.return_value.get<bool>()) return 1;
  for (const auto& [checkpoint, metrics] : result.best_checkpoints) {
    Net model(c10::kCPU);
    trireme::torch::load(checkpoint, model);
    const auto step = metrics["step"].as_int();
    if (!expect(model.weight.eq(step).all().item<bool>(), "the weight of the checkpoint")) return 1;
    if (!expect(model.bias.eq(-step).all().item<bool>(), "the bias of the checkpoint")) return 1;
  }
  if (!expect(result.best_checkpoints.size() == kSteps + 1, "all checkpoints")) return 1;
  std::printf("all right\n");
  return 0;
}
