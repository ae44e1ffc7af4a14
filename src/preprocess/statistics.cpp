#include "preprocess/statistics.h"

#include <algorithm>
#include <cmath>
#include <numeric>

#include "preprocess/columns.h"

namespace trireme::preprocess {
namespace {

// Quantiles are exact up to this number of values; beyond, every level of the sketch keeps this number.
constexpr std::int64_t kSketchValues = 1 << 17;

// A sketch of one column.
template <typename Sketch>
class Sketched {
 public:
  Sketched(std::string column, std::string_view who, Sketch empty)
      : column_(std::move(column)), who_(who), sketch_(std::move(empty)) {}

  base::Result<void> add(const Table& table) {
    TRIREME_ASSIGN(const Column* column, numeric(table, column_, who_));
    auto values = floats_of(*column);
    std::erase_if(values, [](double value) { return std::isnan(value); });
    if (std::any_of(values.begin(), values.end(), [](double value) { return std::isinf(value); })) {
      return base::error("{}: column '{}' has infinite values: replace them, or filter their rows out", who_, column_);
    }
    if (!values.empty()) seen_ = true;
    sketch_.add(values);
    return {};
  }

  base::Result<Sketch> done() {
    if (!seen_) return nothing_to_learn_from(column_, who_);
    return std::move(sketch_);
  }

 private:
  std::string column_;
  std::string_view who_;
  Sketch sketch_;
  bool seen_ = false;
};

template <typename Sketch>
std::unique_ptr<Learner> learn(const std::vector<std::string>& columns, std::string_view who, const Sketch& empty,
                               std::function<base::Result<Dict>(const std::vector<Sketch>&)> finish) {
  std::vector<Sketched<Sketch>> parts;
  for (const auto& column : columns) parts.emplace_back(column, who, empty);
  return std::make_unique<EachColumnLearner<Sketched<Sketch>, Sketch>>(std::move(parts), std::move(finish));
}

}  // namespace

base::Error nothing_to_learn_from(const std::string& column, std::string_view who) {
  return base::error("{}: column '{}' has no values to learn from: all are null, or there are no rows", who, column);
}

void Moments::add(const std::vector<double>& values) {
  if (values.empty()) return;
  const auto rows = static_cast<std::int64_t>(values.size());
  long double sum = 0;
  for (const double value : values) sum += value;
  const auto here = static_cast<double>(sum / static_cast<long double>(rows));
  long double apart_squared = 0;
  for (const double value : values) apart_squared += static_cast<long double>(value - here) * (value - here);
  const double apart = here - mean;
  const auto all = static_cast<double>(count + rows);
  squares +=
      static_cast<double>(apart_squared) + apart * apart * static_cast<double>(count) * static_cast<double>(rows) / all;
  mean += apart * static_cast<double>(rows) / all;
  count += rows;
  const auto [lowest, highest] = std::minmax_element(values.begin(), values.end());
  low = std::min(low, *lowest);
  high = std::max(high, *highest);
}

double Moments::deviation() const { return std::sqrt(squares / static_cast<double>(count)); }

void Quantiles::add(const std::vector<double>& values) {
  for (std::size_t start = 0; start < values.size(); start += size_) {
    const std::size_t end = std::min(values.size(), start + size_);
    put(0, {values.begin() + static_cast<std::ptrdiff_t>(start), values.begin() + static_cast<std::ptrdiff_t>(end)});
  }
}

void Quantiles::put(std::size_t depth, std::vector<double> values) {
  if (depth == levels_.size()) levels_.emplace_back();
  auto& level = levels_[depth];
  level.insert(level.end(), values.begin(), values.end());
  if (level.size() <= size_) return;
  std::sort(level.begin(), level.end());
  const std::size_t even = level.size() / 2 * 2;
  std::vector<double> half;
  for (std::size_t i = odd_ ? 1 : 0; i < even; i += 2) half.push_back(level[i]);
  level.erase(level.begin(), level.begin() + static_cast<std::ptrdiff_t>(even));
  odd_ = !odd_;
  put(depth + 1, std::move(half));
}

std::size_t Quantiles::kept() const {
  return std::accumulate(levels_.begin(), levels_.end(), std::size_t{0},
                         [](std::size_t sum, const auto& level) { return sum + level.size(); });
}

std::vector<double> Quantiles::at(const std::vector<double>& fractions) const {
  struct Weighed {
    double value;
    double weight;
  };
  std::vector<Weighed> values;
  for (std::size_t depth = 0; depth < levels_.size(); ++depth) {
    for (const double value : levels_[depth]) values.push_back({value, std::ldexp(1.0, static_cast<int>(depth))});
  }
  std::stable_sort(values.begin(), values.end(), [](const Weighed& a, const Weighed& b) { return a.value < b.value; });
  // The middle of the ranks that a value represents.
  std::vector<double> ranks;
  double end = 0;
  for (const auto& each : values) {
    end += each.weight;
    ranks.push_back(end - (each.weight + 1) / 2);
  }
  std::vector<double> found;
  for (const double fraction : fractions) {
    const double wanted = fraction * (end - 1);
    const auto above = std::upper_bound(ranks.begin(), ranks.end(), wanted) - ranks.begin();
    const auto after = static_cast<std::size_t>(above);
    if (after == 0) found.push_back(values.front().value);
    else if (after == ranks.size()) found.push_back(values.back().value);
    else {
      const double slope = (values[after].value - values[after - 1].value) / (ranks[after] - ranks[after - 1]);
      found.push_back(slope * (wanted - ranks[after - 1]) + values[after - 1].value);
    }
  }
  return found;
}

std::unique_ptr<Learner> learn_moments(const std::vector<std::string>& columns, std::string_view who,
                                       std::function<base::Result<Dict>(const std::vector<Moments>&)> finish) {
  return learn(columns, who, Moments(), std::move(finish));
}

std::unique_ptr<Learner> learn_quantiles(const std::vector<std::string>& columns, std::string_view who,
                                         std::int64_t size,
                                         std::function<base::Result<Dict>(const std::vector<Quantiles>&)> finish) {
  return learn(columns, who, Quantiles(static_cast<std::size_t>(std::max(size, kSketchValues))), std::move(finish));
}

}  // namespace trireme::preprocess
