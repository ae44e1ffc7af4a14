#pragma once

#include <cmath>
#include <string>
#include <utility>
#include <vector>

#include "preprocess/preprocessor_impl.h"
#include "preprocess/python_text.h"

namespace trireme::preprocess {

// A preprocessor with one output column per input column.
class ColumnsPreprocessor : public PreprocessorImpl {
 public:
  explicit ColumnsPreprocessor(InOut names) : names_(std::move(names)) {}

  std::vector<std::string> inputs() const override { return names_.columns; }
  std::vector<std::string> outputs() const override { return names_.output_columns; }

 protected:
  const std::vector<std::string>& columns() const { return names_.columns; }
  const std::string& column(std::size_t index) const { return names_.columns[index]; }
  const std::string& output(std::size_t index) const { return names_.output_columns[index]; }

  // For example "mean(age)".
  static std::string stat_name(std::string_view what, const std::string& column) {
    return std::string(what) + "(" + column + ")";
  }

 private:
  InOut names_;
};

// A preprocessor that computes each output column only from its input column.
class EachColumnPreprocessor : public ColumnsPreprocessor {
 public:
  using ColumnsPreprocessor::ColumnsPreprocessor;

  base::Result<Changes> change(const Table& table) const override {
    Changes changes;
    for (std::size_t i = 0; i < columns().size(); ++i) {
      TRIREME_ASSIGN(auto column, changed(table, i));
      changes.columns.push_back(std::move(column));
    }
    return changes;
  }

 protected:
  // The column with that index.
  virtual base::Result<Column> changed(const Table& table, std::size_t index) const = 0;
};

// Of preprocessors without other arguments.
template <typename T>
Made of_columns(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  return make_impl<T>(std::move(names));
}

// For statistics from a file, which may contain anything. fit() never finds infinity or NaN.
inline base::Result<double> number_in(const Dict& stats, const std::string& name) {
  const Value* found = stats.find(name);
  if (!found || !found->is_number() || !std::isfinite(found->as_double()))
    return base::error("{} is {}, expected a number", name, found ? python_text(*found) : "missing");
  return found->as_double();
}

inline base::Result<const Value*> value_in(const Dict& stats, const std::string& name) {
  const Value* found = stats.find(name);
  if (!found) return base::error("{} is missing", name);
  return found;
}

}  // namespace trireme::preprocess
