#include "trireme/result.h"

#include <algorithm>

#include "api/train_session.h"
#include "base/metric.h"
#include "control/run_folder.h"
#include "storage/open_files.h"

namespace trireme {
namespace {

// A run folder, local or in remote storage.
struct OpenedRun {
  std::shared_ptr<storage::Files> files;  // shared by all users of the same storage
  control::RunRecord record;
};

OpenedRun open_run(const std::string& path) {
  OpenedRun opened;
  std::string inside;
  opened.files = api::value_or_throw(storage::open_files(path, inside));
  opened.record = api::value_or_throw(control::read_run(*opened.files, inside));
  return opened;
}

}  // namespace

std::vector<Metrics> Result::metrics_history() const {
  if (path.empty()) return {};
  return control::metrics_history(open_run(path).record);
}

std::vector<Dict> Result::metrics_of_all_ranks() const {
  if (path.empty()) return {};
  return control::metrics_of_all_ranks(open_run(path).record);
}

Checkpoint Result::get_best_checkpoint(const std::string& metric, const std::string& mode) const {
  if (mode != "max" && mode != "min") throw std::invalid_argument(fmt::format("mode = '{}': must be max or min", mode));
  const std::pair<Checkpoint, Metrics>* best = nullptr;
  double best_score = 0;
  for (const auto& candidate : best_checkpoints) {
    auto value = base::find_metric(candidate.second, metric);
    if (!value) continue;
    if (!best || (mode == "max" ? *value >= best_score : *value <= best_score)) {
      best = &candidate;
      best_score = *value;
    }
  }
  if (!best) throw std::runtime_error(fmt::format("no checkpoint of {} has a metric '{}'", path, metric));
  return best->first;
}

Result Result::from_path(const std::string& path) {
  auto [files, record] = open_run(path);
  Result result;
  result.path = files->local() ? record.path : path;
  result.metrics = control::last_metrics(record);
  std::int64_t newest = -1;
  for (const auto& kept : api::value_or_throw(control::read_checkpoints(*files, record))) {
    Checkpoint checkpoint(storage::child_of(result.path, kept.name));
    if (kept.index > newest) result.checkpoint = checkpoint;
    newest = std::max(newest, kept.index);
    result.best_checkpoints.emplace_back(std::move(checkpoint), kept.metrics);
  }
  const auto summary = control::summary(record, false, 0);
  result.attempts = static_cast<int>(summary.attempts);
  result.reports = summary.reports.count();
  result.error = summary.error;
  result.seconds = summary.seconds;
  auto returned = api::value_or_throw(control::read_return_value(*files, record));
  if (!returned.pickled) result.return_value = std::move(returned.value);
  return result;
}

}  // namespace trireme
