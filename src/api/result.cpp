#include "trireme/result.h"

#include <cmath>

#include "base/json.h"
#include "base/text.h"
#include "checkpoint/commit.h"
#include "control/event_fields.h"
#include "control/run_folder.h"

namespace trireme {
namespace {

control::RunRecord read(const std::string& path) {
  auto record = control::read_run(path);
  if (!record) throw std::runtime_error(record.error().message());
  return *std::move(record);
}

// "a/b" reaches into nested metrics. nullopt where it is absent or no number.
std::optional<double> score(const Metrics& metrics, const std::string& name) {
  if (const Value* value = metrics.find(name)) {
    if (value->is_number()) return value->as_double();
  }
  std::size_t slash = name.find('/');
  if (slash == std::string::npos) return std::nullopt;
  const Dict* inner = control::dict_of(metrics, name.substr(0, slash));
  return inner ? score(*inner, name.substr(slash + 1)) : std::nullopt;
}

}  // namespace

std::vector<Metrics> Result::metrics_history() const {
  if (path.empty()) return {};
  return control::metrics_history(read(path));
}

Checkpoint Result::get_best_checkpoint(const std::string& metric, const std::string& mode) const {
  if (mode != "max" && mode != "min") throw std::invalid_argument(fmt::format("mode = '{}': must be max or min", mode));
  const std::pair<Checkpoint, Metrics>* best = nullptr;
  double best_score = 0;
  for (const auto& candidate : best_checkpoints) {
    auto value = score(candidate.second, metric);
    if (!value || std::isnan(*value)) continue;
    if (!best || (mode == "max" ? *value >= best_score : *value <= best_score)) {
      best = &candidate;
      best_score = *value;
    }
  }
  if (!best) throw std::runtime_error(fmt::format("no checkpoint of {} has a metric '{}'", path, metric));
  return best->first;
}

Result Result::from_path(const std::string& path) {
  const auto record = read(path);
  Result result;
  result.path = record.path;
  auto history = control::metrics_history(record);
  if (!history.empty()) result.metrics = std::move(history.back());
  auto committed = checkpoint::list_committed(record.path);
  if (!committed) throw std::runtime_error(committed.error().message());
  for (const auto& each : *committed) result.best_checkpoints.emplace_back(Checkpoint(each.path), each.metrics);
  if (!committed->empty()) result.checkpoint = Checkpoint(committed->back().path);
  const auto summary = control::summary(record, false, 0);
  result.attempts = static_cast<int>(summary.attempts);
  result.reports = summary.reports;
  result.error = summary.error;
  result.seconds = summary.seconds;
  return result;
}

}  // namespace trireme
