#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <limits>
#include <unordered_set>

#include "base/text.h"
#include "plan/cells.h"
#include "plan/plan.h"
#include "plan/value_or_throw.h"
#include "trireme/data.h"

// Aggregates of a column over all rows, batch by batch; batches are not kept.

namespace trireme {
namespace {

using plan::CellKind;
using plan::Cells;
using plan::CellType;
using plan::value_or_throw;
using plan::Whole;
constexpr Whole kLeast = std::numeric_limits<std::int64_t>::min();
constexpr Whole kMost = std::numeric_limits<std::int64_t>::max();

// The required type of a column.
enum class Fit { kNumber, kNumberOrBool, kOrdered, kPlain };

bool fits(const CellType& type, Fit fit) {
  if (type.kind == CellKind::kNull || type.is_number()) return true;
  if (type.kind == CellKind::kOther || fit == Fit::kNumber) return false;
  return fit != Fit::kNumberOrBool || type.kind == CellKind::kBool;
}

// Every batch of a column, in the dataset's order before any shuffle.
void scan(const Dataset& dataset, const std::string& verb, const std::string& column, Fit fit,
          const std::function<void(const Cells&)>& add) {
  const auto names = dataset.columns();
  if (std::find(names.begin(), names.end(), column) == names.end()) {
    throw ValueError(fmt::format("{}: no column named '{}'{} (columns: {})", verb, column,
                                 base::did_you_mean(column, names), base::join(names, ", ")));
  }
  const Dataset only = dataset.select_columns({column});
  const auto schema = value_or_throw(only.plan()->schema());
  const auto type = plan::cells_of(data::Batch::empty(schema), 0).type;
  if (!fits(type, fit)) {
    throw ValueError(
        fmt::format("{}({}): column '{}' is {}, which has no {}", verb, column, column, type.text(), verb));
  }
  const auto fragments = value_or_throw(only.plan()->fragments());
  for (std::size_t i = 0; i < fragments.size(); ++i) {
    const auto input = value_or_throw(plan::Input::open(*only.plan(), i, 0));
    while (true) {
      const auto batch = value_or_throw(input->next(0));
      if (batch.rows() == 0) break;
      add(plan::cells_of(batch, 0));
    }
  }
}

// A compensated sum of floats (Neumaier).
class RealSum {
 public:
  void add(double value) {
    const double sum = sum_ + value;
    if (std::isfinite(sum)) lost_ += std::fabs(sum_) >= std::fabs(value) ? (sum_ - sum) + value : (value - sum) + sum_;
    sum_ = sum;
  }
  double value() const { return std::isfinite(sum_) ? sum_ + lost_ : sum_; }

 private:
  double sum_ = 0;
  double lost_ = 0;
};

struct Total {
  std::int64_t rows = 0;  // not null
  bool null = false;
  bool real = false;
  Whole wholes = 0;
  RealSum reals;

  bool has_result(bool ignore_nulls) const { return rows > 0 && (ignore_nulls || !null); }
};

Total total_of(const Dataset& dataset, const std::string& verb, const std::string& column) {
  Total total;
  scan(dataset, verb, column, Fit::kNumberOrBool, [&](const Cells& cells) {
    total.real = cells.type.kind == CellKind::kReal;
    for (std::size_t row = 0; row < cells.size(); ++row) {
      if (!cells.valid[row]) {
        total.null = true;
        continue;
      }
      ++total.rows;
      if (total.real) total.reals.add(cells.reals[row]);
      else total.wholes += cells.wholes[row];
    }
  });
  return total;
}

// The order of values: numbers by size (NaN only if there is nothing else), text by bytes.
bool is_before(const Cells& cells, std::size_t row, const Value& best) {
  switch (cells.type.kind) {
    case CellKind::kReal: return !(cells.reals[row] >= best.as_double());
    case CellKind::kText: return cells.texts[row] < best.as_string();
    case CellKind::kBytes: return cells.texts[row] < best.as_bytes().data;
    case CellKind::kBool: return (cells.wholes[row] != 0) < best.as_bool();
    default: return cells.wholes[row] < Whole{best.as_int()};
  }
}

bool is_after(const Cells& cells, std::size_t row, const Value& best) {
  switch (cells.type.kind) {
    case CellKind::kReal: return !(cells.reals[row] <= best.as_double());
    case CellKind::kText: return cells.texts[row] > best.as_string();
    case CellKind::kBytes: return cells.texts[row] > best.as_bytes().data;
    case CellKind::kBool: return (cells.wholes[row] != 0) > best.as_bool();
    default: return cells.wholes[row] > Whole{best.as_int()};
  }
}

bool is_nan(const Value& value) {
  const auto* real = value.get_if<double>();
  return real && std::isnan(*real);
}

Value extreme(const Dataset& dataset, const std::string& verb, const std::string& column, bool ignore_nulls) {
  const auto is_better = verb == "min" ? is_before : is_after;
  Value best;
  bool null = false;
  scan(dataset, verb, column, Fit::kOrdered, [&](const Cells& cells) {
    for (std::size_t row = 0; row < cells.size(); ++row) {
      if (!cells.valid[row]) {
        null = true;
        continue;
      }
      const bool nan = cells.type.kind == CellKind::kReal && std::isnan(cells.reals[row]);
      const bool whole = cells.type.kind == CellKind::kWhole;
      if (whole && cells.wholes[row] > kMost) {
        throw ValueError(
            fmt::format("{}({}): a value of the column does not fit into a signed 64-bit integer", verb, column));
      }
      if (best.is_null() || (!nan && (is_nan(best) || is_better(cells, row, best)))) best = cells.value(row);
    }
  });
  return null && !ignore_nulls ? Value() : best;
}

// Count, mean and sum of squared deviations.
struct Spread {
  double rows = 0;
  double mean = 0;
  double squares = 0;

  // Chan et al.: accurate even if the mean is far from zero.
  void add(const Spread& other) {
    if (other.rows == 0) return;
    const double all = rows + other.rows;
    const double away = other.mean - mean;
    squares += other.squares + away * away * rows * other.rows / all;
    mean += away * other.rows / all;
    rows = all;
  }
};

Spread spread_of(const Cells& cells) {
  Spread spread;
  RealSum sum;
  for (std::size_t row = 0; row < cells.size(); ++row) {
    if (!cells.valid[row]) continue;
    sum.add(cells.real(row));
    ++spread.rows;
  }
  if (spread.rows == 0) return spread;
  spread.mean = sum.value() / spread.rows;
  RealSum squares;
  for (std::size_t row = 0; row < cells.size(); ++row) {
    if (cells.valid[row]) squares.add(std::pow(cells.real(row) - spread.mean, 2));
  }
  spread.squares = squares.value();
  return spread;
}

// The same for equal values.
std::string key_of(const Cells& cells, std::size_t row) {
  std::string key;
  const auto put = [&](const auto& value) {
    key.resize(sizeof value);
    std::memcpy(key.data(), &value, sizeof value);
  };
  if (cells.type.is_text()) return std::string(cells.texts[row]);
  if (cells.type.kind != CellKind::kReal) put(cells.wholes[row]);
  else if (std::isnan(cells.reals[row])) put(std::numeric_limits<double>::quiet_NaN());
  else put(cells.reals[row]);
  return key;
}

}  // namespace

Value Dataset::sum(const std::string& on, bool ignore_nulls) const {
  const Total total = total_of(*this, "sum", on);
  if (!total.has_result(ignore_nulls)) return {};
  if (total.real) return Value(total.reals.value());
  if (total.wholes < kLeast || total.wholes > kMost) {
    throw ValueError(fmt::format(
        "sum({}): the sum does not fit into 64 bits; with_column(..., \"{} * 1.0\") converts the column to floats", on,
        on));
  }
  return Value(static_cast<std::int64_t>(total.wholes));
}

Value Dataset::mean(const std::string& on, bool ignore_nulls) const {
  const Total total = total_of(*this, "mean", on);
  if (!total.has_result(ignore_nulls)) return {};
  const double sum = total.real ? total.reals.value() : static_cast<double>(total.wholes);
  return Value(sum / static_cast<double>(total.rows));
}

Value Dataset::min(const std::string& on, bool ignore_nulls) const { return extreme(*this, "min", on, ignore_nulls); }

Value Dataset::max(const std::string& on, bool ignore_nulls) const { return extreme(*this, "max", on, ignore_nulls); }

Value Dataset::std(const std::string& on, int ddof, bool ignore_nulls) const {
  Spread spread;
  bool null = false;
  scan(*this, "std", on, Fit::kNumber, [&](const Cells& cells) {
    null = null || std::find(cells.valid.begin(), cells.valid.end(), 0) != cells.valid.end();
    if (cells.type.is_number()) spread.add(spread_of(cells));
  });
  if (spread.rows == 0 || (null && !ignore_nulls)) return {};
  if (spread.rows <= ddof) return Value(std::numeric_limits<double>::quiet_NaN());
  return Value(std::sqrt(spread.squares / (spread.rows - ddof)));
}

List Dataset::unique(const std::string& column, bool ignore_nulls) const {
  List values;
  std::unordered_set<std::string> seen;
  bool null = false;
  scan(*this, "unique", column, Fit::kPlain, [&](const Cells& cells) {
    for (std::size_t row = 0; row < cells.size(); ++row) {
      const bool first = cells.valid[row] ? seen.insert(key_of(cells, row)).second : !std::exchange(null, true);
      if (first && (cells.valid[row] || !ignore_nulls)) values.push_back(cells.value(row));
    }
  });
  return values;
}

}  // namespace trireme
