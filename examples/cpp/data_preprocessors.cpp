#include <trireme/preprocessors.h>
#include <trireme/trireme.h>

#include <cstdio>

// Numbers, categories and gaps become vectors on their way to the workers, and the checkpoint knows how: whoever serves
// the model, in C++ or in Python, does the same to its inputs.
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
    for (const float value : batch["features"].values<float>()) sum += value;  // your model
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
  // Workers go through main() too: each learns the same from the same rows.
  const auto prepared = prepare.fit_transform(people);
  const auto result = trireme::DataParallelTrainer(train, {.config = {{"preprocessor", prepare.serialize()}},
                                                           .datasets = {{"train", prepared}},
                                                           .run = {.name = "data_preprocessors"}})
                          .fit();

  // Later, elsewhere: for what the model is asked.
  const auto state = result.checkpoint->load_state();
  const auto loaded = Preprocessor::deserialize(state["preprocessor"].as_string());
  const auto asked = loaded.transform_batch(Dict{{"age", List{30.0}}, {"town", List{"Tyre"}}});
  for (const float value : asked["features"].as_tensor().values<float>()) std::printf("%g ", value);
  std::printf("\n");
  return 0;
}
