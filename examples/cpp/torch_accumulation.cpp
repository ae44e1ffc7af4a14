#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <iostream>

// Large batches in little memory: the gradients of four small batches are summed, sent once, clipped and applied.

namespace {

void train() {
  constexpr int kSmallBatches = 4;
  torch::manual_seed(0);
  auto model = trireme::torch::prepare_model(
      torch::nn::Sequential(torch::nn::Linear(16, 32), torch::nn::ReLU(), torch::nn::Linear(32, 1)));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.1).momentum(0.9));
  torch::manual_seed(1 + trireme::context().world_rank);  // different data on every rank

  for (int step = 0; step < 50; ++step) {
    optimizer.zero_grad();
    double sum = 0;
    const auto add_gradients = [&] {
      const auto x = torch::randn({8, 16}, trireme::torch::get_device());
      const auto loss = torch::mse_loss(model(x), x.sum(1, true)) / kSmallBatches;
      loss.backward();
      sum += loss.item<double>();
    };
    {
      const auto held = model.no_sync();  // nothing is sent while it exists
      for (int i = 0; i + 1 < kSmallBatches; ++i) add_gradients();
    }
    add_gradients();  // sends the sum of all of them
    torch::nn::utils::clip_grad_norm_(model->parameters(), 1.0);
    optimizer.step();
    trireme::report({{"step", step}, {"loss", sum}});
  }
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const auto result =
      trireme::DataParallelTrainer(train, {.scaling = {.num_workers = 2}, .run = {.name = "torch_accumulation"}}).fit();
  const auto history = result.metrics_history();
  std::cout << "loss " << history.front()["loss"].get<double>() << " -> " << history.back()["loss"].get<double>()
            << "\n";
}
