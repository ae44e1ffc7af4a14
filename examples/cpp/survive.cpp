#include <trireme/trireme.h>

#include <cmath>
#include <csignal>
#include <cstdint>
#include <iostream>
#include <numeric>
#include <optional>
#include <random>
#include <string>
#include <vector>

// A run loses workers: one is killed, another throws. It resumes from the newest checkpoint. Healthy ranks keep their
// process and the data in its memory.

namespace {

constexpr int kSteps = 12;

// Loaded once per process, no matter how often the function is called.
const std::vector<double>& my_data() {
  static const std::vector<double> data = [] {
    std::cout << "rank " << trireme::context().world_rank << " loads its data" << std::endl;
    std::mt19937 random(7 + trireme::context().world_rank);
    std::normal_distribution<double> around_three(3.0, 0.5);
    std::vector<double> made(200'000);
    for (double& each : made) each = around_three(random);
    return made;
  }();
  return data;
}

double gradient(double x, const std::vector<double>& data) {
  double sum = 0;
  for (std::size_t i = 0; i < data.size(); ++i) {
    // Needed in long computations without other trireme calls: leaves the function when the gang is restarted.
    if (i % 50'000 == 0) trireme::check_interrupted();
    sum += 2 * (x - data[i]);
  }
  return sum / static_cast<double>(data.size());
}

// Averages the gradient over all ranks. Keys need no attempt number: each attempt starts with an empty store.
double mean_over_ranks(double mine, int step) {
  const auto& context = trireme::context();
  const std::string key = "gradient_" + std::to_string(step) + "_";
  trireme::store::set(key + std::to_string(context.world_rank), std::to_string(mine));
  double sum = 0;
  for (int rank = 0; rank < context.world_size; ++rank) {
    sum += std::stod(trireme::store::get(key + std::to_string(rank)));
  }
  return sum / context.world_size;
}

void bad_luck(int step) {
  const auto& context = trireme::context();
  if (context.attempt == 0 && step == 4 && context.world_rank == 1) std::raise(SIGKILL);
  if (context.attempt == 1 && step == 8 && context.world_rank == 2) throw std::runtime_error("a bad sample");
}

double train(const trireme::Config& config) {
  const auto& data = my_data();
  double x = 0;
  int first = 0;
  if (auto checkpoint = trireme::get_checkpoint()) {
    const trireme::Dict state = checkpoint->load_state(0);
    x = state.at("x").get<double>();
    first = state.at("next").get<int>();
  }
  for (int step = first; step < kSteps; ++step) {
    bad_luck(step);
    x -= config["lr"].get<double>() * mean_over_ranks(gradient(x, data), step);
    // Every fourth step, and when a preemption is announced.
    const auto announced = trireme::get_preemption_info();
    const bool store = announced || step % 4 == 3;
    std::optional<trireme::Checkpoint> checkpoint;
    if (store && trireme::context().world_rank == 0) {
      checkpoint = trireme::Checkpoint::from_state({{"x", x}, {"next", step + 1}});
    }
    trireme::report({{"step", step}, {"x", x}}, checkpoint);
  }
  return x;
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  trireme::DataParallelTrainer trainer(
      train, {.config = {{"lr", 0.3}},
              .scaling = {.num_workers = 3},
              .run = {.name = "survive", .failure_config = {.max_failures = 2, .warm_restart = true}}});
  const trireme::Result result = trainer.fit();
  std::cout << "x = " << std::round(result.return_value.get<double>() * 100) / 100 << " after " << result.attempts
            << " attempts\n";
}
