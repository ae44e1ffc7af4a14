#ifdef __x86_64__
#include <immintrin.h>
#endif

#include <algorithm>
#include <cmath>
#include <memory>

#include "data/unaligned.h"
#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"
#include "preprocess/statistics.h"

// Scalers that compute (value - statistic) / statistic.

namespace trireme::preprocess {
namespace {

// A smaller deviation means a constant column, which is only shifted.
constexpr double kEpsilon = 1e-8;

// The offset and divisor of a column.
struct Scale {
  double moved = 0;
  double divided = 1;
};

#ifdef __x86_64__
// Returns how many values it has scaled, four at a time: a quarter of the time. GCC does not vectorize the loop at -O2.
__attribute__((target("avx2"))) std::size_t scale_wide(const char* values, double* out, std::size_t count,
                                                       Scale scale) {
  const __m256d moved = _mm256_set1_pd(scale.moved);
  const __m256d divided = _mm256_set1_pd(scale.divided);
  std::size_t i = 0;
  for (; i + 4 <= count; i += 4) {
    const __m256d four = _mm256_loadu_pd(reinterpret_cast<const double*>(values + i * sizeof(double)));
    _mm256_storeu_pd(out + i, _mm256_div_pd(_mm256_sub_pd(four, moved), divided));
  }
  return i;
}
#endif

void scale_all(const char* values, double* out, std::size_t count, Scale scale) {
  std::size_t i = 0;
#ifdef __x86_64__
  static const bool wide = __builtin_cpu_supports("avx2");
  if (wide) i = scale_wide(values, out, count, scale);
#endif
  for (; i < count; ++i) {
    out[i] = (data::load<double>(values, static_cast<std::int64_t>(i)) - scale.moved) / scale.divided;
  }
}

// The names of a column's statistics, and how they scale it.
struct ScaledBy {
  std::vector<std::string_view> stats;
  Scale (*scale)(const std::vector<double>& stats);
};

class Scaler : public EachColumnPreprocessor {
 public:
  Scaler(InOut names, ScaledBy by) : EachColumnPreprocessor(std::move(names)), by_(std::move(by)) {}

 protected:
  // `measured`: the statistics of each column.
  Dict stats_of(const std::vector<std::vector<double>>& measured) const {
    Dict stats;
    for (std::size_t i = 0; i < measured.size(); ++i) {
      for (std::size_t j = 0; j < by_.stats.size(); ++j) stats[stat_name(by_.stats[j], column(i))] = measured[i][j];
    }
    return stats;
  }

 private:
  base::Result<void> understand(const Dict& stats) override {
    scales_.clear();
    for (const auto& each : columns()) {
      std::vector<double> numbers;
      for (const auto stat : by_.stats) {
        TRIREME_ASSIGN(numbers.emplace_back(), number_in(stats, stat_name(stat, each)));
      }
      scales_.push_back(by_.scale(numbers));
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, numeric(table, column(index), name()));
    const Scale scale = scales_[index];
    if (found->format() == "g") return scaled(*found, scale, index);
    auto values = floats_of(*found);
    for (double& value : values) value = (value - scale.moved) / scale.divided;
    return from_floats(output(index), std::move(values), *found);
  }

  // In one pass from the column to the result: half the time.
  Column scaled(const Column& column, Scale scale, std::size_t index) const {
    const ArrowArray& array = *column.array;
    const auto rows = static_cast<std::size_t>(column.rows());
    auto values = std::make_shared_for_overwrite<double[]>(std::max<std::size_t>(rows, 1));
    const auto first = static_cast<std::size_t>(array.offset) * sizeof(double);
    if (rows > 0) scale_all(static_cast<const char*>(array.buffers[1]) + first, values.get(), rows, scale);
    return from_doubles(output(index), std::move(values), column);
  }

  ScaledBy by_;
  std::vector<Scale> scales_;
};

// By statistics that follow from the moments.
class MomentScaler final : public Scaler {
 public:
  using Measure = std::vector<double> (*)(const Moments&);
  MomentScaler(InOut names, ScaledBy by, Measure measure)
      : Scaler(std::move(names), std::move(by)), measure_(measure) {}

  std::unique_ptr<Learner> learner() const override {
    return learn_moments(columns(), name(), [this](const auto& found) -> base::Result<Dict> {
      std::vector<std::vector<double>> measured;
      for (const auto& each : found) measured.push_back(measure_(each));
      return stats_of(measured);
    });
  }

 private:
  Measure measure_;
};

Made moment_scaler(Arguments& given, ScaledBy by, MomentScaler::Measure measure) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  return make_impl<MomentScaler>(std::move(names), std::move(by), measure);
}

class RobustScaler final : public Scaler {
 public:
  RobustScaler(InOut names, ScaledBy by, double low, double high, std::int64_t precision)
      : Scaler(std::move(names), std::move(by)), low_(low), high_(high), precision_(precision) {}

  std::unique_ptr<Learner> learner() const override {
    return learn_quantiles(columns(), name(), precision_, [this](const auto& sketches) -> base::Result<Dict> {
      std::vector<std::vector<double>> measured;
      for (const auto& each : sketches) measured.push_back(each.at({low_, 0.5, high_}));
      return stats_of(measured);
    });
  }

 private:
  double low_;
  double high_;
  std::int64_t precision_;
};

}  // namespace

Made make_standard_scaler(Arguments& given) {
  const auto scale = [](const std::vector<double>& stats) {
    return Scale{stats[0], stats[1] < kEpsilon ? 1.0 : stats[1]};
  };
  return moment_scaler(given, {{"mean", "std"}, scale}, [](const Moments& found) {
    return std::vector{found.mean, found.deviation()};
  });
}

Made make_min_max_scaler(Arguments& given) {
  const auto scale = [](const std::vector<double>& stats) {
    const double range = stats[1] - stats[0];
    return Scale{stats[0], range < kEpsilon ? 1.0 : range};
  };
  return moment_scaler(given, {{"min", "max"}, scale}, [](const Moments& found) {
    return std::vector{found.low, found.high};
  });
}

Made make_max_abs_scaler(Arguments& given) {
  const auto scale = [](const std::vector<double>& stats) { return Scale{0, stats[0] == 0 ? 1.0 : stats[0]}; };
  return moment_scaler(given, {{"abs_max"}, scale}, [](const Moments& found) {
    return std::vector{std::max(std::abs(found.low), std::abs(found.high))};
  });
}

Made make_robust_scaler(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  double low = 0.25;
  double high = 0.75;
  if (const Value& range = given.get("quantile_range"); !range.is_null()) {
    TRIREME_ASSIGN(const auto both, decoded(range), "quantile_range");
    const auto* list = both.get_if<List>();
    const bool numbers = list && list->size() == 2 && list->front().is_number() && list->back().is_number();
    if (numbers) low = list->front().as_double();
    if (numbers) high = list->back().as_double();
    if (!numbers || !(0 <= low && low < high && high <= 1))
      return base::error("quantile_range={}: expected two fractions, the smaller one first", python_text(range));
  }
  given.set("quantile_range", encoded(List{low, high}));
  if (given.get("quantile_precision").is_null()) given.set("quantile_precision", 800);
  TRIREME_ASSIGN(const auto precision, given.whole("quantile_precision"));
  const auto scale = [](const std::vector<double>& stats) {
    return Scale{stats[1], stats[2] == stats[0] ? 1.0 : stats[2] - stats[0]};
  };
  return make_impl<RobustScaler>(std::move(names), ScaledBy{{"low_quantile", "median", "high_quantile"}, scale}, low,
                                 high, precision);
}

}  // namespace trireme::preprocess
