#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <iostream>

// example_torch_from_python FROM: continues the training that examples/python/state.py has saved in the folder FROM.
// The next loss is the same as in Python, and Python can resume from the checkpoint that this program writes.

namespace {

void train(const trireme::Config& config) {
  auto model = trireme::torch::prepare_model(torch::nn::Linear(4, 2));
  torch::optim::AdamW optimizer(model->parameters());
  const auto extras = trireme::torch::load(trireme::Checkpoint(config["from"].get<std::string>()), *model, optimizer);
  trireme::torch::set_rng_state({{"cpu", extras["random"]}});

  const auto loss = (model(torch::randn({8, 4})) - 1).square().mean();
  optimizer.zero_grad();
  loss.backward();
  optimizer.step();

  const int epoch = extras["epoch"].get<int>() + 1;
  trireme::report({{"epoch", epoch}, {"loss", loss.item<double>()}},
                  trireme::torch::save(*model, optimizer, {{"epoch", epoch}}));
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc != 2) {
    std::cerr << "usage: example_torch_from_python FROM\n";
    return 2;
  }
  const auto result =
      trireme::DataParallelTrainer(train, {.config = {{"from", argv[1]}}, .run = {.name = "torch_from_python"}}).fit();
  std::cout << "loss " << result.metrics->at("loss").get<double>() << ", resume from " << result.checkpoint->path()
            << "\n";
}
