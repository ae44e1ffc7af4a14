// LightGBM on two workers: the trainer's own loop, with a categorical column, early stopping and checkpoints. Run it
// again under the same name to continue.
//   example_boosting_lightgbm [FOLDER [ROUNDS]]

#include <trireme/boosting/boosting.h>

#include <cstdint>
#include <iostream>
#include <string>
#include <vector>

// Points in a square. On which side of a line they are decides the label; the line depends on the color.
trireme::Dataset points(std::int64_t rows, std::int64_t first) {
  std::vector<double> x, y, label;
  trireme::List color;
  for (std::int64_t row = first; row < first + rows; ++row) {
    x.push_back(static_cast<double>(row * 7919 % 1000) / 1000);
    y.push_back(static_cast<double>(row * 104729 % 997) / 997);
    color.emplace_back(row % 3 == 0 ? "red" : "blue");
    label.push_back(x.back() + y.back() > (row % 3 == 0 ? 0.7 : 1.3) ? 1 : 0);
  }
  using trireme::Tensor;
  return trireme::data::from_columns(
      {{"x", Tensor::of(x)}, {"y", Tensor::of(y)}, {"color", color}, {"label", Tensor::of(label)}});
}

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  trireme::RunConfig run{.name = "boosting_lightgbm"};
  if (argc > 1) run.storage_path = argv[1];
  run.checkpoint_config.checkpoint_frequency = 5;
  const trireme::boosting::LightgbmTrainer trainer(
      {.params = {{"objective", "binary"}, {"metric", "binary_logloss"}, {"num_leaves", 7}},
       .num_boost_round = argc > 2 ? std::stoll(argv[2]) : 40,
       .label_column = "label",
       .categorical_columns = {"color"},
       .early_stopping_rounds = 5,
       .datasets = {{"train", points(4000, 0)}, {"valid", points(1000, 4000)}},
       .scaling = {.num_workers = 2},
       .run = run});
  const trireme::Result result = trainer.fit();
  std::cout << "loss " << result.metrics->at("valid-binary_logloss").as_double() << " in " << result.checkpoint->path()
            << "\n";
}
