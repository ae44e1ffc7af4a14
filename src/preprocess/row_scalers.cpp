#include <algorithm>
#include <cmath>

#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"

// Scalers that need no statistics: by row, or value by value.

namespace trireme::preprocess {
namespace {

class Normalizer final : public ColumnsPreprocessor {
 public:
  Normalizer(InOut names, std::string norm) : ColumnsPreprocessor(std::move(names)), norm_(std::move(norm)) {}
  bool fittable() const override { return false; }

  base::Result<Changes> change(const Table& table) const override {
    std::vector<const Column*> found;
    std::vector<std::vector<double>> values;
    for (const auto& each : columns()) {
      TRIREME_ASSIGN(const Column* column, numeric(table, each, name()));
      found.push_back(column);
      values.push_back(floats_of(*column));
    }
    for (std::size_t row = 0; row < static_cast<std::size_t>(table.rows()); ++row) {
      const double norm = norm_of(values, row);
      for (auto& column : values) column[row] /= norm == 0 ? 1.0 : norm;
    }
    Changes changes;
    for (std::size_t i = 0; i < found.size(); ++i)
      changes.columns.push_back(from_floats(output(i), std::move(values[i]), *found[i]));
    return changes;
  }

 private:
  double norm_of(const std::vector<std::vector<double>>& values, std::size_t row) const {
    double norm = 0;
    for (const auto& column : values) {
      const double value = column[row];
      if (norm_ == "l1") norm += std::abs(value);
      else if (norm_ == "l2") norm += value * value;
      else norm = std::isnan(value) || std::isnan(norm) ? std::nan("") : std::max(norm, std::abs(value));
    }
    return norm_ == "l2" ? std::sqrt(norm) : norm;
  }

  std::string norm_;
};

double powered(double value, double power) {
  return power == 0 ? std::log(value) : (std::pow(value, power) - 1) / power;
}

class PowerTransformer final : public EachColumnPreprocessor {
 public:
  PowerTransformer(InOut names, double power, std::string method)
      : EachColumnPreprocessor(std::move(names)), power_(power), method_(std::move(method)) {}
  bool fittable() const override { return false; }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, numeric(table, column(index), name()));
    auto values = floats_of(*found);
    for (double& value : values) {
      if (method_ == "box-cox") {
        if (value <= 0) {
          return base::error(
              "PowerTransformer: column '{}' has {}, but box-cox needs positive values: use method='yeo-johnson'",
              column(index), python_text(value));
        }
        value = powered(value, power_);
      } else if (value >= 0) {
        value = powered(value + 1, power_);
      } else {
        value = -powered(1 - value, 2 - power_);
      }
    }
    return from_floats(output(index), std::move(values), *found);
  }

  double power_;
  std::string method_;
};

}  // namespace

Made make_normalizer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  if (given.get("norm").is_null()) given.set("norm", "l2");
  TRIREME_ASSIGN(auto norm, given.choice("norm", {"l1", "l2", "max"}));
  return make_impl<Normalizer>(std::move(names), std::move(norm));
}

Made make_power_transformer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(const double power, given.number("power"));
  TRIREME_ASSIGN(auto method, given.choice("method", {"yeo-johnson", "box-cox"}));
  return make_impl<PowerTransformer>(std::move(names), power, std::move(method));
}

}  // namespace trireme::preprocess
