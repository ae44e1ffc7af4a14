#include <trireme/arrow/data.h>
#include <trireme/trireme.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <iomanip>
#include <iostream>
#include <string>

// A linear model in plain C++, trained on Parquet files that are read during training. Every checkpoint stores the
// position in the data. With --kill a worker is killed in the middle of an epoch, the run resumes from the checkpoint
// before, and the final weights are the same to the last digit. `trireme data verify data_parquet` proves that every
// epoch used each row once.

namespace {

using trireme::Dict;
using trireme::Tensor;

// Writes y = 3 x0 - 2 x1 + 1 to four files. Not needed if you have your own files.
void make_files(const std::string& folder) {
  const auto points = trireme::data::range(4000).map_batches([](const trireme::Batch& batch) -> Dict {
    std::vector<float> x;
    std::vector<float> y;
    for (auto id : batch["id"].values<std::int64_t>()) {
      const float x0 = std::sin(static_cast<float>(id));
      const float x1 = std::cos(static_cast<float>(id) * 0.7F);
      x.insert(x.end(), {x0, x1});
      y.push_back(3 * x0 - 2 * x1 + 1);
    }
    return {{"x", Tensor::of(x, {batch.rows(), 2})}, {"y", Tensor::of(y)}};
  });
  int part = 0;
  for (const auto& each : points.split(4)) {
    trireme::data::write_parquet(each, folder + "/part=" + std::to_string(part++));
  }
}

struct Model {
  std::vector<double> weights = {0, 0, 0};  // x0, x1, bias

  // One step with the gradient of the mean squared error over the batches of all ranks, summed through the store.
  double step(const trireme::Batch& batch, double lr, std::int64_t number) {
    const auto x = batch["x"].values<float>();
    const auto y = batch["y"].values<float>();
    std::vector<double> sums(5, 0.0);  // three slopes, the loss, the number of rows
    for (std::size_t i = 0; i < y.size(); ++i) {
      const double error = weights[0] * x[2 * i] + weights[1] * x[2 * i + 1] + weights[2] - y[i];
      const double terms[] = {error * x[2 * i], error * x[2 * i + 1], error, error * error, 1.0};
      for (std::size_t k = 0; k < sums.size(); ++k) sums[k] += terms[k];
    }
    const auto all = sum_of_all_ranks(sums, number);
    for (std::size_t k = 0; k < weights.size(); ++k) weights[k] -= lr * 2 * all[k] / all[4];
    return all[3] / all[4];
  }

 private:
  // Uses integers, so that the sum does not depend on the order of the ranks.
  static std::vector<double> sum_of_all_ranks(const std::vector<double>& mine, std::int64_t number) {
    constexpr double kScale = 1 << 30;
    const std::string prefix = "step" + std::to_string(number) + "/";
    for (std::size_t k = 0; k < mine.size(); ++k) {
      trireme::store::add(prefix + std::to_string(k), static_cast<std::int64_t>(std::llround(mine[k] * kScale)));
    }
    trireme::collective::barrier();
    std::vector<double> all;
    for (std::size_t k = 0; k < mine.size(); ++k) {
      all.push_back(static_cast<double>(trireme::store::add(prefix + std::to_string(k), 0)) / kScale);
    }
    return all;
  }
};

void train(const trireme::Config& config) {
  const auto& context = trireme::context();
  const auto shard = trireme::get_dataset_shard("train");  // resumes at the position of the checkpoint
  Model model;
  std::int64_t step = 0;
  if (const auto checkpoint = trireme::get_checkpoint()) {
    const Dict state = checkpoint->load_state();
    const auto stored = state["weights"].as_tensor().values<double>();
    model.weights.assign(stored.begin(), stored.end());
    step = state["step"].as_int();
    std::cout << "resuming after step " << step << ", in epoch " << shard.epoch() << std::endl;
  }
  while (shard.epoch() < 3) {
    for (const auto& batch : shard.iter_batches({.batch_size = 50})) {
      const double loss = model.step(batch, 0.3, ++step);
      if (step == 57 && config["kill"].get<bool>() && context.world_rank == 1 && context.attempt == 0) {
        std::raise(SIGKILL);
      }
      if (step % 10 != 0) continue;
      trireme::report({{"epoch", shard.epoch()}, {"step", step}, {"loss", loss}},
                      trireme::Checkpoint::from_state({{"step", step}, {"weights", Tensor::of(model.weights)}}));
    }
  }
  trireme::report({{"w0", model.weights[0]}, {"w1", model.weights[1]}, {"bias", model.weights[2]}});
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::string folder = argc > 1 ? argv[1] : "points";
  const bool kill = argc > 2 && std::string(argv[2]) == "--kill";
  if (!std::filesystem::exists(folder)) make_files(folder);
  // The order differs in every epoch and stays the same after a restart.
  const auto points = trireme::data::read_parquet(folder, {.columns = {"x", "y"}}).random_shuffle({.seed = 7});
  const auto result =
      trireme::DataParallelTrainer(train, {.config = {{"kill", kill}},
                                           .datasets = {{"train", points}},
                                           .dataset_config = {.log_samples = true},
                                           .scaling = {.num_workers = 2},
                                           .run = {.name = "data_parquet", .failure_config = {.max_failures = 1}}})
          .fit();
  std::cout << "weights " << std::setprecision(17) << result.metrics->at("w0").get<double>() << " "
            << result.metrics->at("w1").get<double>() << " " << result.metrics->at("bias").get<double>() << " after "
            << result.attempts << (result.attempts == 1 ? " attempt\n" : " attempts\n");
}
