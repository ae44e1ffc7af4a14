#include "api/progress.h"

#include <fmt/format.h>

#include "api/describe.h"
#include "base/dict_fields.h"
#include "base/text.h"

namespace trireme::api {
namespace {

constexpr std::size_t kShownMetrics = 6;
constexpr std::size_t kMaxMetric = 24;

}  // namespace

void Progress::count(const Dict& event) {
  const std::string kind = base::text_of(event, "event");
  if (kind == "run_started") {
    if (const std::int64_t earlier = base::int_of(event, "reports"); earlier > 0) reports_.add(-1, earlier - 1);
  } else if (kind == "attempt_started") {
    attempt_ = base::int_of(event, "attempt");
    workers_ = base::int_of(event, "num_workers");
  } else if (kind == "report") {
    reports_.add(base::int_of(event, "attempt"), base::int_of(event, "index"));
    if (base::int_of(event, "rank") != 0) return;
    if (const Dict* metrics = base::dict_of(event, "metrics")) metrics_ = *metrics;
    data_rate_.count(event);
  }
}

std::string Progress::text(double seconds) const {
  std::string line = fmt::format("{:.1f} s", seconds);
  if (attempt_ > 0) line += fmt::format("  attempt {}", attempt_);
  line += fmt::format("  {}  {}", base::count_of(workers_, "worker"), base::count_of(reports(), "report"));
  std::size_t shown = 0;
  for (const auto& [name, value] : metric_rows(metrics_)) {
    if (++shown > kShownMetrics) break;
    line += fmt::format("  {} {}", name, shortened(value, kMaxMetric));
  }
  if (!data_rate_.text().empty()) line += "  " + data_rate_.text();
  return line;
}

}  // namespace trireme::api
