// Uses only the installed package, as a user does. XGBoost and LightGBM need not be installed.
#include <trireme/boosting/boosting.h>

#include <iostream>
#include <vector>

template <typename Trainer>
void refused(const trireme::boosting::BoostingOptions& options) {
  try {
    Trainer(options).fit();
  } catch (const trireme::ConfigError& error) {
    std::cout << "refused: " << error.what() << "\n";
  }
}

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const std::vector<double> values{0, 1, 2, 3};
  trireme::boosting::BoostingOptions options;
  options.datasets.emplace(
      "train", trireme::data::from_columns({{"x", trireme::Tensor::of(values)}, {"z", trireme::Tensor::of(values)}}));
  options.library = "/absent/library.so";
  options.label_column = "y";
  refused<trireme::boosting::XgboostTrainer>(options);
  options.label_column = "z";
  refused<trireme::boosting::LightgbmTrainer>(options);
}
