#include <trireme/trireme.h>

#include <iostream>

// A program that uses only the result of `cmake --install`. Errors, configurations, workers and results cross the
// library boundary.

void train(const trireme::Config& config) {
  trireme::report({{"doubled", 2 * config["number"].get<int>()}, {"workers", trireme::context().world_size}});
}
TRIREME_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  if (argc != 2) return 1;
  try {
    trireme::validate(trireme::ScalingConfig{.num_workers = -1});
    return 2;
  } catch (const trireme::ConfigError& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
  trireme::DataParallelTrainer trainer(train, {.config = {{"number", 21}},
                                               .scaling = {.num_workers = 2},
                                               .run = {.name = "consumer", .storage_path = argv[1]}});
  trireme::Result result = trainer.fit();
  std::cout << result.metrics->at("doubled").get<int>() << " from " << result.metrics->at("workers").get<int>()
            << " workers\n";
}
