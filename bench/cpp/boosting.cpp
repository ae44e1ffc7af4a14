// The job of bench/boosting from C++: bench_boosting xgboost|lightgbm, with the rows in $BENCH_ROWS.

#include <trireme/arrow/data.h>
#include <trireme/boosting/boosting.h>

#include <cstdlib>
#include <string_view>

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const bool xgboost = std::string_view(argv[1]) == "xgboost";
  trireme::boosting::BoostingOptions options;
  if (xgboost) {
    options.params = {{"objective", "binary:logistic"}, {"max_depth", 6}, {"eta", 0.1}};
  } else {
    options.params = {{"objective", "binary"}, {"num_leaves", 63}, {"learning_rate", 0.1}};
  }
  options.num_boost_round = 50;
  options.label_column = "label";
  options.datasets.emplace("train", trireme::data::read_parquet(std::getenv("BENCH_ROWS")));
  options.scaling.num_workers = 2;
  if (xgboost) {
    trireme::boosting::XgboostTrainer(options).fit();
  } else {
    trireme::boosting::LightgbmTrainer(options).fit();
  }
}
