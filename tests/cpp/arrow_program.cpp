// arrow_program URI [steps]: trains with its run folder in an object store. tests/python/test_cpp_storage.py runs it.

#include <cstdio>
#include <cstdlib>
#include <stdexcept>

#include "trireme/arrow/arrow.h"
#include "trireme/trireme.h"

using trireme::Checkpoint;
using trireme::CheckpointUploadMode;
using trireme::Dict;
using trireme::Tensor;

void train(const trireme::Config& config) {
  std::int64_t step = 0;
  if (auto checkpoint = trireme::get_checkpoint()) {
    const Dict state = checkpoint->load_state();
    step = state["step"].as_int() + 1;
    if (state["weights"].as_tensor().values<float>()[1] != static_cast<float>(step - 1)) {
      throw std::runtime_error("the weights are not those of the step");
    }
    if (trireme::context().world_rank == 0) std::printf("continues at step %ld\n", static_cast<long>(step));
  }
  for (; step < config["steps"].as_int(); ++step) {
    std::optional<Checkpoint> checkpoint;
    if (trireme::context().world_rank == 0) {
      checkpoint = Checkpoint::from_state(
          {{"step", step}, {"weights", Tensor::of(std::vector<float>{0.5f, static_cast<float>(step)})}});
    }
    trireme::report({{"step", step}}, checkpoint, {.checkpoint_upload_mode = CheckpointUploadMode::kAsync});
  }
}
TRIREME_TRAIN_FUNCTION(train);

int main(int argc, char** argv) {
  trireme::data::register_filesystems();
  trireme::init(argc, argv);
  if (argc < 2) return 2;
  trireme::TrainerOptions options;
  options.config = {{"steps", argc > 2 ? std::atoi(argv[2]) : 3}};
  options.scaling.num_workers = 2;
  options.run.name = "from_cpp";
  options.run.storage_path = argv[1];
  options.run.checkpoint_config.num_to_keep = 2;
  try {
    const auto result = trireme::DataParallelTrainer(train, options).fit();
    const auto directory = result.checkpoint->as_directory();
    std::printf("path %s\nkept %zu\nsize of the newest %zu\nhistory %zu\n", result.checkpoint->path().c_str(),
                result.best_checkpoints.size(), result.checkpoint->load_state().size(),
                result.metrics_history().size());
    std::printf("downloaded to %s\n", directory.path().c_str());
  } catch (const std::exception& failed) {
    std::printf("failed: %s\n", failed.what());
    return 1;
  }
}
