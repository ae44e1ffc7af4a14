#include <trireme/trireme.h>

#include <cmath>
#include <iostream>

// Gradient descent on (x - target)^2. Every worker runs this function; rank 0's reports are the result's metrics.
double train(const trireme::Config& config) {
  double x = trireme::context().world_rank;
  for (int step = 0; step < config["steps"].get<int>(); ++step) {
    x -= config["lr"].get<double>() * 2 * (x - config["target"].get<double>());
    trireme::report({{"step", step}, {"loss", std::pow(x - config["target"].get<double>(), 2)}});
  }
  return x;
}
TRIREME_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  trireme::init(argc, argv);  // in a worker process this runs train() and does not return
  trireme::DataParallelTrainer trainer(train, {.config = {{"steps", 20}, {"lr", 0.1}, {"target", 3.0}},
                                               .scaling = {.num_workers = 4},
                                               .run = {.name = "quickstart"}});
  trireme::Result result = trainer.fit();
  std::cout << "x = " << result.return_value.get<double>() << ", loss " << result.metrics->at("loss").get<double>()
            << "\n";
}
