// XGBoost on two workers: the trainer's own loop, with checkpoints. Run it again under the same name to continue.
//   example_boosting_xgboost [FOLDER [ROUNDS]]

#include <trireme/boosting/boosting.h>

#include <cstdint>
#include <iostream>
#include <vector>

// Points in a square; the label is on which side of a diagonal they are.
trireme::Dataset points(std::int64_t rows, std::int64_t first) {
  std::vector<double> x, y, label;
  for (std::int64_t row = first; row < first + rows; ++row) {
    x.push_back(static_cast<double>(row * 7919 % 1000) / 1000);
    y.push_back(static_cast<double>(row * 104729 % 997) / 997);
    label.push_back(x.back() + y.back() > 1 ? 1 : 0);
  }
  using trireme::Tensor;
  return trireme::data::from_columns({{"x", Tensor::of(x)}, {"y", Tensor::of(y)}, {"label", Tensor::of(label)}});
}

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  trireme::RunConfig run{.name = "boosting_xgboost"};
  if (argc > 1) run.storage_path = argv[1];
  run.checkpoint_config.checkpoint_frequency = 5;
  const trireme::boosting::XgboostTrainer trainer(
      {.params = {{"objective", "binary:logistic"}, {"eval_metric", "logloss"}, {"max_depth", 3}},
       .num_boost_round = argc > 2 ? std::stoll(argv[2]) : 20,
       .label_column = "label",
       .datasets = {{"train", points(4000, 0)}, {"valid", points(1000, 4000)}},
       .scaling = {.num_workers = 2},
       .run = run});
  const trireme::Result result = trainer.fit();
  std::cout << "loss " << result.metrics->at("valid-logloss").as_double() << " in " << result.checkpoint->path()
            << "\n";
}
