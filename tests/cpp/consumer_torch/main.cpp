#include <torch/torch.h>
#include <trireme/torch/torch.h>

#include <iostream>

// A program that uses an installed Trireme and a libtorch.

void train() {
  auto model = trireme::torch::prepare_model(torch::nn::Linear(1, 1));
  model(torch::ones({2, 1}, trireme::torch::get_device())).sum().backward();
  trireme::report({{"gradient", model->weight.grad().item<double>()}}, trireme::torch::save(*model));
}
TRIREME_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc != 2) return 1;
  trireme::DataParallelTrainer trainer(
      train, {.scaling = {.num_workers = 2}, .run = {.name = "consumer_torch", .storage_path = argv[1]}});
  const trireme::Result result = trainer.fit();
  std::cout << "gradient " << result.metrics->at("gradient").get<double>() << "\n";
}
