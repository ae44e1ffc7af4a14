#include <trireme/preprocessors.h>
#include <trireme/trireme.h>

#include <cstdio>

// Preprocessors turn numbers, categories and missing values into vectors for the workers. The checkpoint stores them,
// so that a server in C++ or Python transforms its inputs in the same way.
//   ./example_data_preprocessors

namespace data = trireme::data;
using trireme::Dict;
using trireme::List;
using namespace trireme::data::preprocessors;

namespace {

void train(const trireme::Config& config) {
  const auto shard = trireme::get_dataset_shard("train");
  double sum = 0;
  for (auto& batch : shard.iter_batches({.batch_size = 2})) {
    for (const float value : batch["features"].values<float>()) sum += value;  // your model goes here
  }
  trireme::report({{"sum", sum}},
                  trireme::Checkpoint::from_state({{"sum", sum}, {"preprocessor", config["preprocessor"]}}));
}
TRIREME_TRAIN_FUNCTION(train);

}  // namespace

int main(int argc, char** argv) {
  trireme::init(argc, argv);
  const auto people =
      data::from_columns({{"age", List{20.0, 30.0, nullptr, 40.0}}, {"town", List{"Rome", "Athens", "Rome", "Tyre"}}});
  Chain prepare(SimpleImputer({"age"}), StandardScaler({"age"}), OrdinalEncoder({"town"}),
                Concatenator({"age", "town"}, {.output_column_name = "features", .dtype = trireme::DType::kF32}));
  // Workers execute main() too: each fits the same preprocessor to the same rows.
  const auto prepared = prepare.fit_transform(people);
  const auto result = trireme::DataParallelTrainer(train, {.config = {{"preprocessor", prepare.serialize()}},
                                                           .datasets = {{"train", prepared}},
                                                           .run = {.name = "data_preprocessors"}})
                          .fit();

  // Later, in a server: transform the inputs of the model.
  const auto state = result.checkpoint->load_state();
  const auto loaded = Preprocessor::deserialize(state["preprocessor"].as_string());
  const auto asked = loaded.transform_batch(Dict{{"age", List{30.0}}, {"town", List{"Tyre"}}});
  for (const float value : asked["features"].as_tensor().values<float>()) std::printf("%g ", value);
  std::printf("\n");
  return 0;
}
