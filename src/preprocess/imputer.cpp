#include <cmath>

#include "preprocess/categories.h"
#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"
#include "preprocess/statistics.h"

// Fills in missing values.

namespace trireme::preprocess {
namespace {

class SimpleImputer final : public EachColumnPreprocessor {
 public:
  SimpleImputer(InOut names, std::string strategy, const Value& fill_value)
      : EachColumnPreprocessor(std::move(names)), strategy_(std::move(strategy)) {
    if (strategy_ == "constant") fillings_.assign(columns().size(), fill_value);
  }
  bool fittable() const override { return strategy_ != "constant"; }

  std::unique_ptr<Learner> learner() const override {
    if (strategy_ == "mean") {
      return learn_moments(columns(), name(), [this](const auto& found) -> base::Result<Dict> {
        Dict stats;
        for (std::size_t i = 0; i < found.size(); ++i) stats[stat_name("mean", column(i))] = found[i].mean;
        return stats;
      });
    }
    const CountOptions options{.inside_lists = false, .skip_nulls = true};
    return learn_counts(columns(), name(), options, [this](const auto& counted) -> base::Result<Dict> {
      Dict stats;
      for (std::size_t i = 0; i < counted.size(); ++i) {
        const auto& counts = counted[i].counts;
        const auto most = std::max_element(counts.begin(), counts.end()) - counts.begin();
        stats[stat_name("most_frequent", column(i))] = encoded(counted[i].values[static_cast<std::size_t>(most)]);
      }
      return stats;
    });
  }

 private:
  base::Result<void> understand(const Dict& stats) override {
    fillings_.clear();
    for (const auto& each : columns()) {
      if (strategy_ == "mean") {
        TRIREME_ASSIGN(const double mean, number_in(stats, stat_name("mean", each)));
        fillings_.emplace_back(mean);
        continue;
      }
      const auto stat = stat_name("most_frequent", each);
      TRIREME_ASSIGN(const Value* found, value_in(stats, stat));
      TRIREME_ASSIGN(auto value, decoded(*found), "{}", stat);
      fillings_.push_back(std::move(value));
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    if (strategy_ == "mean") {
      TRIREME_ASSIGN(const Column* found, numeric(table, column(index), name()));
      if (is_floating(found->format())) return with(fillings_[index], *found, index);
      return with(fillings_[index], from_floats(column(index), floats_of(*found), *found), index);
    }
    TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
    const auto* number = fillings_[index].get_if<double>();
    if (number && is_whole(found->format()) && std::trunc(*number) != *number)
      return with(fillings_[index], from_floats(column(index), floats_of(*found), *found), index);
    return with(fillings_[index], *found, index);
  }

  base::Result<Column> with(const Value& value, const Column& column, std::size_t index) const {
    auto filling = filling_of(value, column);
    if (!filling) {
      return base::error(
          "SimpleImputer: column '{}' is {}, and {} is not a valid value for it: pass a fill_value of its type",
          this->column(index), column.type(), python_text(value));
    }
    if (column.format() == "n") {
      std::vector<const Value*> values(static_cast<std::size_t>(column.rows()), &value);
      return from_values(output(index), *filling->schema, values);
    }
    return filled(output(index), column, *filling);
  }

  // One row.
  static base::Result<Column> filling_of(const Value& value, const Column& column) {
    if (column.format() != "n") return from_values("", *column.schema, {&value});
    TRIREME_ASSIGN(const auto type, schema_for({value}));
    return from_values("", *type, {&value});
  }

  std::string strategy_;
  std::vector<Value> fillings_;  // by column
};

}  // namespace

Made make_simple_imputer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(auto strategy, given.choice("strategy", {"mean", "most_frequent", "constant"}));
  TRIREME_ASSIGN(const auto fill_value, decoded(given.get("fill_value")), "fill_value");
  if (strategy == "constant" && fill_value.is_null()) return base::error("strategy='constant' needs a fill_value");
  given.set("fill_value", encoded(fill_value));
  return make_impl<SimpleImputer>(std::move(names), std::move(strategy), fill_value);
}

}  // namespace trireme::preprocess
