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
  SimpleImputer(InOut names, std::string strategy, Value fill_value)
      : EachColumnPreprocessor(std::move(names)), strategy_(std::move(strategy)), fill_value_(std::move(fill_value)) {
    if (strategy_ == "constant") fillings_.assign(columns().size(), fill_value_);
  }
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<SimpleImputer>(*this); }
  std::string_view name() const override { return "SimpleImputer"; }
  bool fittable() const override { return strategy_ != "constant"; }

  Dict arguments() const override {
    return {{"columns", column_list()},
            {"strategy", strategy_},
            {"fill_value", encoded(fill_value_)},
            {"output_columns", output_list()}};
  }

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
  Value fill_value_;
  std::vector<Value> fillings_;  // by column
};

}  // namespace

Made make_simple_imputer(const Dict& given) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "strategy", "fill_value", "output_columns"}));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  TRIREME_ASSIGN(auto strategy, arguments.choice("strategy", {"mean", "most_frequent", "constant"}));
  TRIREME_ASSIGN(auto fill_value, decoded(arguments.get("fill_value")), "fill_value");
  if (strategy == "constant" && fill_value.is_null()) return base::error("strategy='constant' needs a fill_value");
  return std::unique_ptr<PreprocessorImpl>(
      std::make_unique<SimpleImputer>(std::move(names), std::move(strategy), std::move(fill_value)));
}

}  // namespace trireme::preprocess
