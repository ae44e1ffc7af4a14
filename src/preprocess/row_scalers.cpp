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
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<Normalizer>(*this); }
  std::string_view name() const override { return "Normalizer"; }
  bool fittable() const override { return false; }

  Dict arguments() const override {
    return {{"columns", column_list()}, {"norm", norm_}, {"output_columns", output_list()}};
  }

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
  PowerTransformer(InOut names, Value power, std::string method)
      : EachColumnPreprocessor(std::move(names)), power_(std::move(power)), method_(std::move(method)) {}
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<PowerTransformer>(*this); }
  std::string_view name() const override { return "PowerTransformer"; }
  bool fittable() const override { return false; }

  Dict arguments() const override {
    return {{"columns", column_list()}, {"power", power_}, {"method", method_}, {"output_columns", output_list()}};
  }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, numeric(table, column(index), name()));
    auto values = floats_of(*found);
    const double power = power_.as_double();
    for (double& value : values) {
      if (method_ == "box-cox") {
        if (value <= 0) {
          return base::error(
              "PowerTransformer: column '{}' has {}, but box-cox needs positive values: use method='yeo-johnson'",
              column(index), python_text(value));
        }
        value = powered(value, power);
      } else if (value >= 0) {
        value = powered(value + 1, power);
      } else {
        value = -powered(1 - value, 2 - power);
      }
    }
    return from_floats(output(index), std::move(values), *found);
  }

  Value power_;
  std::string method_;
};

}  // namespace

Made make_normalizer(const Dict& given) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "norm", "output_columns"}));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  if (arguments.get("norm").is_null())
    return std::unique_ptr<PreprocessorImpl>(std::make_unique<Normalizer>(names, "l2"));
  TRIREME_ASSIGN(auto norm, arguments.choice("norm", {"l1", "l2", "max"}));
  return std::unique_ptr<PreprocessorImpl>(std::make_unique<Normalizer>(std::move(names), std::move(norm)));
}

Made make_power_transformer(const Dict& given) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "power", "method", "output_columns"}));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  TRIREME_TRY(arguments.number("power"));
  TRIREME_ASSIGN(auto method, arguments.choice("method", {"yeo-johnson", "box-cox"}));
  return std::unique_ptr<PreprocessorImpl>(
      std::make_unique<PowerTransformer>(std::move(names), arguments.get("power"), std::move(method)));
}

}  // namespace trireme::preprocess
