#include "boosting/round_reporter.h"

#include <stdlib.h>

#include <cstdio>
#include <filesystem>
#include <memory>
#include <stdexcept>

#include "trireme/boosting_job.h"
#include "trireme/context.h"

namespace trireme::boosting {
namespace {

std::string kept_folder() {
  std::string path = std::filesystem::temp_directory_path() / "trireme_checkpoint_XXXXXX";
  if (::mkdtemp(path.data()) == nullptr) throw std::runtime_error("no temporary folder can be created: " + path);
  return path;
}

}  // namespace

RoundReporter::RoundReporter(const Config& config, std::string file, Save save, std::function<Dict()> metadata)
    : frequency_(config["checkpoint_frequency"].as_int()),
      at_end_(config["checkpoint_at_end"].as_bool()),
      file_(std::move(file)),
      save_(std::move(save)),
      metadata_(std::move(metadata)) {}

bool RoundReporter::after_round(std::int64_t rounds, Metrics metrics) {
  last_ = std::move(metrics);
  // LightGBM's rounds without a split do not add to the model.
  if (frequency_ > 0 && rounds % frequency_ == 0 && rounds != saved_rounds_) {
    report_checkpoint(rounds);
    return true;
  }
  report(last_);
  return false;
}

void RoundReporter::after_training(std::int64_t rounds) {
  if (at_end_ && rounds > 0 && rounds != saved_rounds_) report_checkpoint(rounds);
}

void RoundReporter::report_checkpoint(std::int64_t rounds) {
  saved_rounds_ = rounds;
  if (context().world_rank != 0) {
    report(last_);
    return;
  }
  // Local mode, which has no run folder, keeps the folder as the checkpoint.
  const auto temporary = context().path.empty() ? nullptr : std::make_unique<TemporaryFolder>();
  const std::string folder = temporary ? temporary->path() : kept_folder();
  save_(folder + "/" + file_);
  Checkpoint checkpoint = Checkpoint::from_directory(folder);
  if (const Dict metadata = metadata_(); !metadata.empty()) {
    Dict all = context().metadata;
    for (const auto& [name, value] : metadata) all[name] = value;
    checkpoint.set_metadata(all);
  }
  report(last_, checkpoint);
}

void warn_of_random_numbers(const std::string& library, const Config& config) {
  std::string names;
  for (const Value& name : config["unrepeatable"].as_list()) {
    names += (names.empty() ? "" : ", ") + name.as_string();
  }
  if (names.empty() || context().world_rank != 0) return;
  std::fprintf(
      stderr,
      "warning: %s does not store its random numbers (%s): the resumed model is valid, but not identical to one "
      "of an undisturbed run\n",
      library.c_str(), names.c_str());
}

}  // namespace trireme::boosting
