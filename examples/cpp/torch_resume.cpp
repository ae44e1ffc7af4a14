#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <csignal>
#include <iomanip>
#include <iostream>
#include <string>

// A run that resumes in the middle of an epoch. With --kill a worker is killed at step 23, and the run resumes from the
// checkpoint before; the final loss is the same as without --kill, to the last digit.

namespace {

struct Points : torch::data::datasets::Dataset<Points> {
  explicit Points(int count) {
    auto random = at::make_generator<at::CPUGeneratorImpl>(1);
    inputs = torch::randn({count, 8}, random);
    targets = torch::sin(inputs.sum(1, true));
  }
  torch::data::Example<> get(std::size_t index) override {
    const auto row = static_cast<std::int64_t>(index);
    return {inputs[row], targets[row]};
  }
  std::optional<std::size_t> size() const override { return static_cast<std::size_t>(inputs.size(0)); }
  torch::Tensor inputs, targets;
};

void train(const trireme::Config& config) {
  torch::manual_seed(0);
  const Points points(256);
  auto model = trireme::torch::prepare_model(
      torch::nn::Sequential(torch::nn::Linear(8, 32), torch::nn::Tanh(), torch::nn::Linear(32, 1)));
  torch::optim::Adam optimizer(model->parameters(), torch::optim::AdamOptions(0.01));
  // Every checkpoint stores the position of the loader, which resumes there automatically.
  auto loader = trireme::torch::prepare_data_loader(Points(points).map(torch::data::transforms::Stack<>()),
                                                    torch::data::DataLoaderOptions(8));
  int step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    step = trireme::torch::load(*checkpoint, *model, optimizer)["step"].get<int>();
    std::cout << "resuming after step " << step << std::endl;
  }

  const auto& context = trireme::context();
  while (loader.epoch() < 3) {  // 16 steps each
    for (auto& batch : loader) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(batch.data), batch.target);
      loss.backward();
      optimizer.step();
      if (++step == 23 && config["kill"].get<bool>() && context.world_rank == 1 && context.attempt == 0) {
        std::raise(SIGKILL);
      }
      if (step % 5 == 0) {
        trireme::report({{"step", step}, {"loss", loss.item<double>()}},
                        trireme::torch::save(*model, optimizer, {{"step", step}}));
      }
    }
  }
  const torch::NoGradGuard no_grad;
  trireme::report({{"step", step}, {"loss", torch::mse_loss(model(points.inputs), points.targets).item<double>()}});
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const bool kill = argc > 1 && std::string(argv[1]) == "--kill";
  const auto result = trireme::DataParallelTrainer(train, {.config = {{"kill", kill}},
                                                           .scaling = {.num_workers = 2},
                                                           .run = {.failure_config = {.max_failures = 1}}})
                          .fit();
  std::cout << "loss " << std::setprecision(17) << result.metrics->at("loss").get<double>() << " after "
            << result.attempts << (result.attempts == 1 ? " attempt\n" : " attempts\n");
}
