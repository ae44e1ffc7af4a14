#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <iostream>

// A multilayer perceptron on synthetic digits in bfloat16 mixed precision, with clipped gradients and a learning rate
// that is lowered when the loss stagnates. --half uses float16, whose gradients must be scaled.

namespace {

// Ten images of 8 x 8, repeated with noise. Every rank generates the same data; the loader selects its part.
struct Digits : torch::data::datasets::Dataset<Digits> {
  explicit Digits(int count) : labels(torch::arange(count) % 10) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(7);
    const auto pictures = torch::rand({10, 64}, random);
    images = pictures.index_select(0, labels) + 0.3 * torch::randn({count, 64}, random);
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {images[row], labels[row]};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(labels.size(0)); }
  torch::Tensor labels, images;
};

void train(const trireme::Config& config) {
  const auto type = config["half"].get<bool>() ? torch::kHalf : torch::kBFloat16;
  auto model = trireme::torch::prepare_model(
      torch::nn::Sequential(torch::nn::Linear(64, 64), torch::nn::ReLU(), torch::nn::Linear(64, 10)));
  torch::optim::AdamW optimizer(model->parameters(), torch::optim::AdamWOptions(0.01));
  torch::optim::ReduceLROnPlateauScheduler scheduler(optimizer, torch::optim::ReduceLROnPlateauScheduler::min, 0.5,
                                                     /*patience=*/1);
  trireme::torch::GradScaler scaler({.enabled = type == torch::kHalf});
  auto loader = trireme::torch::prepare_data_loader(Digits(640).map(torch::data::transforms::Stack<>()),
                                                    torch::data::DataLoaderOptions(16).workers(1));
  if (const auto checkpoint = trireme::get_checkpoint()) {
    const auto extras = trireme::torch::load(*checkpoint, *model, optimizer);
    trireme::torch::load_state(scheduler, extras["scheduler"].as_dict());
    scaler.load_state(extras["scaler"].as_dict());
  }

  while (loader.epoch() < 5) {
    double loss_sum = 0, right = 0, seen = 0;
    for (auto& batch : loader) {
      torch::Tensor out, loss;
      {
        const trireme::torch::Autocast narrow(type);
        out = model(batch.data);
        loss = torch::cross_entropy_loss(out, batch.target);
      }
      optimizer.zero_grad();
      scaler.scale(loss).backward();
      scaler.unscale_(optimizer);  // so that the norm is that of the unscaled gradients
      torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
      scaler.step(optimizer);
      scaler.update();
      loss_sum += loss.item<double>();
      right += out.argmax(1).eq(batch.target).sum().item<double>();
      seen += static_cast<double>(batch.target.size(0));
    }
    // Ranks have different losses but must agree on the learning rate, so all use the loss of rank 0.
    const auto loss = trireme::collective::broadcast_from_rank_zero(std::to_string(loss_sum / seen));
    scheduler.step(std::stof(loss));
    trireme::report(
        {{"epoch", loader.epoch() - 1}, {"loss", loss_sum / seen}, {"accuracy", right / seen}},
        trireme::torch::save(*model, optimizer,
                             {{"scheduler", trireme::torch::state_of(scheduler)}, {"scaler", scaler.state()}}));
  }
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const bool half = argc > 1 && std::string(argv[1]) == "--half";
  // Some virtual machines advertise AMX but do not allow it (SIGILL). Without AMX, bfloat16 works on every CPU.
  const trireme::Dict variables = {{"ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16"}};
  const auto result = trireme::DataParallelTrainer(
                          train, {.config = {{"half", half}},
                                  .scaling = {.num_workers = 2},
                                  .run = {.name = "torch_precision", .worker_runtime_env = {{"env_vars", variables}}}})
                          .fit();
  std::cout << "accuracy " << result.metrics->at("accuracy").get<double>() << "\n";
}
