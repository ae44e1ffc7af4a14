#include <trireme/trireme.h>

#include <cmath>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <iomanip>
#include <iostream>
#include <random>
#include <string>
#include <vector>

// Logistic regression in plain C++. Each rank trains on its own part of synthetic data. After every epoch rank 0 stores
// a checkpoint and the others wait for it. With --break a worker is killed, and the run resumes from the newest
// checkpoint.

namespace {

struct Sample {
  std::vector<double> x;
  double y;
};

// Two clusters around (1, 1) and (-1, -1). Every rank generates the same data and selects its part.
std::vector<Sample> my_part(int samples) {
  const auto& context = trireme::context();
  std::mt19937 random(7);
  std::normal_distribution<double> noise(0.0, 1.0);
  std::vector<Sample> part;
  for (int i = 0; i < samples; ++i) {
    const double y = i % 2;
    const double center = 2 * y - 1;
    Sample sample{{center + noise(random), center + noise(random)}, y};
    if (i / 2 % context.world_size == context.world_rank) part.push_back(std::move(sample));
  }
  return part;
}

struct Model {
  double w0 = 0, w1 = 0, bias = 0;

  double probability(const Sample& s) const { return 1 / (1 + std::exp(-(w0 * s.x[0] + w1 * s.x[1] + bias))); }

  double train_epoch(const std::vector<Sample>& data, double lr) {
    double loss = 0;
    for (const auto& sample : data) {
      const double p = probability(sample);
      const double slope = lr * (p - sample.y);
      w0 -= slope * sample.x[0];
      w1 -= slope * sample.x[1];
      bias -= slope;
      loss -= std::log(sample.y > 0 ? p : 1 - p);
    }
    return loss / static_cast<double>(data.size());
  }

  double accuracy(const std::vector<Sample>& data) const {
    int right = 0;
    for (const auto& sample : data) right += (probability(sample) > 0.5) == (sample.y > 0.5);
    return static_cast<double>(right) / static_cast<double>(data.size());
  }
};

trireme::Checkpoint save(const Model& model, int epoch) {
  // In the run folder, so that the draft of a killed worker is overwritten.
  const auto folder = std::filesystem::path(trireme::context().path) / "draft";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "model.txt") << std::setprecision(17) << epoch << ' ' << model.w0 << ' ' << model.w1 << ' '
                                      << model.bias << '\n';
  return trireme::Checkpoint::from_directory(folder);
}

int load(const trireme::Checkpoint& checkpoint, Model& model) {
  int epoch = 0;
  std::ifstream(checkpoint.path() + "/model.txt") >> epoch >> model.w0 >> model.w1 >> model.bias;
  return epoch;
}

int train(const trireme::Config& config) {
  const auto& context = trireme::context();
  const auto data = my_part(2000);
  Model model;
  int first = 0;
  if (auto checkpoint = trireme::get_checkpoint()) first = load(*checkpoint, model) + 1;
  for (int epoch = first; epoch < config["epochs"].get<int>(); ++epoch) {
    const double loss = model.train_epoch(data, config["lr"].get<double>());
    if (config["break"].get<bool>() && context.attempt == 0 && epoch == 2 && context.world_rank == 1)
      std::raise(SIGKILL);
    const trireme::Metrics metrics = {{"epoch", epoch}, {"loss", loss}, {"accuracy", model.accuracy(data)}};
    if (context.world_rank == 0) {
      const auto checkpoint = save(model, epoch);
      trireme::report(metrics, checkpoint);  // returns when the files are durable
      std::filesystem::remove_all(checkpoint.path());
    } else {
      trireme::report(metrics);
    }
    trireme::collective::barrier();
  }
  // Every rank receives the string of rank 0.
  const std::string words = std::to_string(model.w0) + " " + std::to_string(model.w1);
  std::cout << "rank 0's weights: " << trireme::collective::broadcast_from_rank_zero(words) << std::endl;
  return first;
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const bool broken = argc > 1 && std::string(argv[1]) == "--break";
  trireme::DataParallelTrainer trainer(train, {.config = {{"epochs", 5}, {"lr", 0.05}, {"break", broken}},
                                               .scaling = {.num_workers = 3},
                                               .run = {.name = "resume", .failure_config = {.max_failures = 1}}});
  const trireme::Result result = trainer.fit();
  std::cout << "accuracy " << result.metrics->at("accuracy").get<double>() << " after " << result.attempts
            << " attempts, the last one from epoch " << result.return_value.get<int>() << "\n";
}
