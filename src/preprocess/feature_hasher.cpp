#include <algorithm>

#include "preprocess/columns.h"
#include "preprocess/tokens.h"

namespace trireme::preprocess {
namespace {

class FeatureHasher final : public PreprocessorImpl {
 public:
  FeatureHasher(std::vector<std::string> columns, std::int64_t features, std::string output)
      : columns_(std::move(columns)), features_(features), output_(std::move(output)) {}
  bool fittable() const override { return false; }
  std::vector<std::string> inputs() const override { return columns_; }
  std::vector<std::string> outputs() const override { return {output_}; }

  base::Result<Changes> change(const Table& table) const override {
    std::vector<const Column*> found;
    for (const auto& each : columns_) {
      TRIREME_ASSIGN(const Column* column, numeric(table, each, name()));
      found.push_back(column);
    }
    const bool whole = std::all_of(found.begin(), found.end(), [](const Column* column) {
      return is_whole(column->format()) || column->format() == "b";
    });
    TRIREME_ASSIGN(Tensor sums, zeros_of(whole ? DType::kI64 : DType::kF64, table.rows(), features_), "{}", name());
    for (const Column* column : found) {
      if (whole && has_missing(*column)) return nulls_in(column->name, name());
      const std::int64_t place = hashed(column->name, features_);
      for (std::int64_t row = 0; row < table.rows(); ++row) {
        const auto at = static_cast<std::size_t>(row * features_ + place);
        if (whole) sums.values<std::int64_t>()[at] += whole_at(*column->schema, *column->array, row);
        else sums.values<double>()[at] += float_at(*column, row);
      }
    }
    Changes changes;
    changes.columns.push_back(from_tensor(output_, sums));
    return changes;
  }

 private:
  static double float_at(const Column& column, std::int64_t row) {
    return null_at(*column.array, row) ? std::nan("") : number_at(*column.schema, *column.array, row);
  }

  std::vector<std::string> columns_;
  std::int64_t features_;
  std::string output_;
};

}  // namespace

Made make_feature_hasher(Arguments& given) {
  TRIREME_ASSIGN(auto columns, given.names("columns"));
  TRIREME_ASSIGN(const auto features, checked_features(given));
  TRIREME_ASSIGN(auto output, given.text("output_column"));
  return make_impl<FeatureHasher>(std::move(columns), features, std::move(output));
}

}  // namespace trireme::preprocess
