#include <torch/torch.h>
#include <trireme/arrow/data.h>
#include <trireme/torch/torch.h>

#include <csignal>
#include <iomanip>
#include <iostream>
#include <string>

// A libtorch network, trained on Parquet files: batches are tensors, without a copy on the CPU and moved to the
// worker's GPU if it has one. With --kill a worker is killed in the middle of an epoch; the final loss is the same.

namespace {

void train(const trireme::Config& config) {
  torch::manual_seed(0);
  auto model = trireme::torch::prepare_model(
      torch::nn::Sequential(torch::nn::Linear(2, 16), torch::nn::Tanh(), torch::nn::Linear(16, 1)));
  torch::optim::SGD optimizer(model->parameters(), torch::optim::SGDOptions(0.05));
  const auto shard = trireme::get_dataset_shard("train");  // resumes at the position of the checkpoint
  int step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    step = trireme::torch::load(*checkpoint, *model, optimizer)["step"].get<int>();
    std::cout << "resuming after step " << step << std::endl;
  }

  const auto& context = trireme::context();
  double last = 0;
  while (shard.epoch() < 2) {
    for (auto& batch : trireme::torch::iter_batches(shard, {.batch_size = 32})) {
      optimizer.zero_grad();
      const auto loss = torch::mse_loss(model(batch["x"]), batch["y"].unsqueeze(1));
      loss.backward();
      optimizer.step();
      last = loss.item<double>();
      if (++step == 23 && config["kill"].get<bool>() && context.world_rank == 1 && context.attempt == 0) {
        std::raise(SIGKILL);
      }
      if (step % 10 == 0) {
        trireme::report({{"step", step}, {"loss", last}}, trireme::torch::save(*model, optimizer, {{"step", step}}));
      }
    }
  }
  trireme::report({{"step", step}, {"loss", last}});
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc < 2) {
    std::cerr << "usage: data_torch FOLDER [--kill]; needs Parquet files with columns x (lists of 2 float32) and y\n";
    return 2;
  }
  const bool kill = argc > 2 && std::string(argv[2]) == "--kill";
  const auto result =
      trireme::DataParallelTrainer(
          train, {.config = {{"kill", kill}},
                  .datasets = {{"train", trireme::data::read_parquet(argv[1]).random_shuffle({.seed = 7})}},
                  .scaling = {.num_workers = 2},
                  .run = {.failure_config = {.max_failures = 1}}})
          .fit();
  std::cout << "loss " << std::setprecision(17) << result.metrics->at("loss").get<double>() << " after "
            << result.attempts << (result.attempts == 1 ? " attempt\n" : " attempts\n");
}
