#include <fmt/format.h>

#include <algorithm>

#include "base/text.h"
#include "plan/plan.h"
#include "plan/read.h"
#include "plan/relational.h"
#include "plan/rows.h"
#include "plan/value_or_throw.h"
#include "trireme/data.h"

// Aggregates of a column over all rows, batch by batch; batches are not kept.

namespace trireme {
namespace {

using plan::Aggregation;
using plan::value_or_throw;

bool fits(const data::Type& type, Aggregation function) {
  constexpr std::string_view kNumbers = "cCsSiIlLefg";
  const char first = type.format.front();
  const bool plain = type.format.size() == 1;
  if (first == 'n' || (plain && kNumbers.find(first) != std::string_view::npos)) return true;
  const bool decimal = first == 'd';  // only of results that are floats: plain values have no decimals
  if (function == Aggregation::kStd) return decimal;
  if (function == Aggregation::kMean) return decimal || first == 'b';
  if (function == Aggregation::kSum) return first == 'b';
  return first == 'b' || first == 't' || type.kind == data::Kind::kText;
}

std::vector<Dict> aggregated(const Dataset& dataset, const std::string& verb, const std::string& column,
                             const plan::Aggregating& asked) {
  const auto* relational = value_or_throw(plan::relational(verb + "()"));
  const auto names = dataset.columns();
  if (std::find(names.begin(), names.end(), column) == names.end()) {
    throw ValueError(fmt::format("{}: no column named '{}'{} (columns: {})", verb, column,
                                 base::did_you_mean(column, names), base::join(names, ", ")));
  }
  const Dataset only = dataset.select_columns({column});
  const auto schema = value_or_throw(only.plan()->schema());
  const auto& type = schema->fields().front().type;
  if (!fits(type, asked.function)) {
    throw ValueError(
        fmt::format("{}({}): column '{}' is {}, which has no {}", verb, column, column, type.text(), verb));
  }
  plan::Record record;
  try {
    record = plan::with_widest_types(*only.plan(), [&] {
      auto stream = value_or_throw(plan::ordered_stream(only.plan()));
      plan::Record made;
      relational->aggregate(&*stream, asked, &*made.array, &*made.schema);
      return made;
    });
  } catch (const std::exception& thrown) {
    throw ValueError(fmt::format("{}({}): {}", verb, column, thrown.what()));
  }
  return value_or_throw(plan::rows_of(value_or_throw(plan::batch_of(std::move(record)))));
}

Value one_value(const Dataset& dataset, const std::string& verb, const std::string& column,
                const plan::Aggregating& asked) {
  return aggregated(dataset, verb, column, asked).front()["value"];
}

}  // namespace

Value Dataset::sum(const std::string& on, bool ignore_nulls) const {
  return one_value(*this, "sum", on, {Aggregation::kSum, ignore_nulls});
}

Value Dataset::mean(const std::string& on, bool ignore_nulls) const {
  return one_value(*this, "mean", on, {Aggregation::kMean, ignore_nulls});
}

Value Dataset::min(const std::string& on, bool ignore_nulls) const {
  return one_value(*this, "min", on, {Aggregation::kMin, ignore_nulls});
}

Value Dataset::max(const std::string& on, bool ignore_nulls) const {
  return one_value(*this, "max", on, {Aggregation::kMax, ignore_nulls});
}

Value Dataset::std(const std::string& on, int ddof, bool ignore_nulls) const {
  return one_value(*this, "std", on, {Aggregation::kStd, ignore_nulls, ddof});
}

List Dataset::unique(const std::string& column, bool ignore_nulls) const {
  List values;
  for (auto& row : aggregated(*this, "unique", column, {Aggregation::kUnique})) {
    if (!ignore_nulls || !row["value"].is_null()) values.push_back(std::move(row["value"]));
  }
  return values;
}

}  // namespace trireme
