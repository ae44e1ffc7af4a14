#include <trireme/trireme.h>

#include <iostream>
#include <string>
#include <vector>

// Training functions that capture variables need no registration. A worker is this program executed again: it runs
// main() up to the same fit() and computes the captured variables again. So main() must take the same path in every
// process. At an earlier fit() a worker gets the driver's result and starts nothing.

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

  // The second run uses the result of the first.
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
