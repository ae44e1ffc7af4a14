#include <trireme/trireme.h>

#include <iostream>
#include <string>
#include <vector>

// Training functions that capture variables. They need no registration: a worker is this program executed again, goes
// through main() up to the same fit() and finds the captured variables as the driver had them. So main() must take the
// same way in every process: at an earlier fit() a worker gets the driver's result and starts nothing.

int main(int argc, char** argv) {
  trireme::init(argc, argv);

  const std::vector<double> data = {1, 2, 3, 4, 5, 6, 7, 8};
  const auto mean_of_my_part = [&data] {
    const auto& context = trireme::context();
    double sum = 0;
    int count = 0;
    for (std::size_t i = context.world_rank; i < data.size(); i += context.world_size) {
      sum += data[i];
      ++count;
    }
    trireme::report({{"mean", sum / count}});
    return sum / count;
  };
  trireme::Result first =
      trireme::DataParallelTrainer(mean_of_my_part, {.scaling = {.num_workers = 2}, .run = {.name = "lambda_first"}})
          .fit();

  // What the first run gave goes into the second.
  const double center = first.return_value.get<double>();
  const auto distance = [center](const trireme::Config& config) {
    const double away = config["point"].get<double>() - center;
    trireme::report({{"distance", away}, {"rank", trireme::context().world_rank}});
    return away;
  };
  trireme::Result second =
      trireme::DataParallelTrainer(
          distance, {.config = {{"point", 10}}, .scaling = {.num_workers = 2}, .run = {.name = "lambda_second"}})
          .fit();
  std::cout << "mean " << center << ", distance " << second.return_value.get<double>() << "\n";
}
