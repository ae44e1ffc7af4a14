#include "boosting/round_reporter.h"

#include <unistd.h>

#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <stdexcept>

#include "trireme/context.h"

namespace trireme::boosting {

RoundReporter::RoundReporter(const Config& config, std::string file, Save save, std::function<Dict()> metadata)
    : frequency_(config["checkpoint_frequency"].as_int()),
      at_end_(config["checkpoint_at_end"].as_bool()),
      file_(std::move(file)),
      save_(std::move(save)),
      metadata_(std::move(metadata)) {}

bool RoundReporter::after_round(std::int64_t rounds, Metrics metrics) {
  last_ = std::move(metrics);
  if (frequency_ > 0 && rounds % frequency_ == 0) {
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
  const TemporaryFolder folder;
  save_(folder.path() + "/" + file_);
  Checkpoint checkpoint = Checkpoint::from_directory(folder.path());
  if (const Dict metadata = metadata_(); !metadata.empty()) {
    Dict all = context().metadata;
    for (const auto& [name, value] : metadata) all[name] = value;
    checkpoint.set_metadata(all);
  }
  report(last_, checkpoint);
}

TemporaryFolder::TemporaryFolder() {
  std::string pattern = std::filesystem::temp_directory_path() / "trireme_boosting_XXXXXX";
  if (::mkdtemp(pattern.data()) == nullptr) throw std::runtime_error("no temporary folder can be created: " + pattern);
  path_ = pattern;
}

TemporaryFolder::~TemporaryFolder() {
  std::error_code ignored;  // a temporary file that stays is not a failure of the training
  std::filesystem::remove_all(path_, ignored);
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
