#include <trireme/config.h>
#include <trireme/value.h>

#include <iostream>

// A program of somebody who has only what `cmake --install` gave: values, configurations and their errors cross the border
// of the library.
int main() {
  trireme::Config config = {{"lr", 0.5}, {"layers", trireme::List{64, 32}}};
  if (config["lr"].get<double>() != 0.5 || config["layers"].as_list().size() != 2) return 1;
  try {
    trireme::validate(trireme::ScalingConfig{.num_workers = -1});
  } catch (const trireme::ConfigError& error) {
    std::cout << "refused: " << error.what() << "\n";
    return 0;
  }
  return 2;
}
