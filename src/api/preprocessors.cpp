#include "trireme/preprocessors.h"

#include <algorithm>
#include <set>

#include "api/batch_mapper.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/rows.h"
#include "plan/value_columns.h"
#include "preprocess/preprocessor_impl.h"
#include "preprocess/python_text.h"

// Preprocessors applied to the datasets and batches of C++ programs.

namespace trireme::data::preprocessors {
namespace {

namespace inner = preprocess;

constexpr std::int64_t kRowsAtOnce = 16384;

template <typename T>
T or_value_error(base::Result<T> result) {
  if (!result) throw ValueError(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
}

// Batches of C++ datasets have the values of dictionaries instead of their indices.
base::Result<Record> without_dictionaries(inner::Table table) {
  const bool dictionaries = std::any_of(table.columns().begin(), table.columns().end(),
                                        [](const inner::Column& column) { return column.schema->dictionary; });
  if (!dictionaries) return std::move(table).record();
  TRIREME_ASSIGN(const auto batch, batch_of(std::move(table).record()));
  return batch.exported();
}

class TransformOp final : public plan::Op {
 public:
  TransformOp(std::shared_ptr<const inner::PreprocessorImpl> impl, bool back) : impl_(std::move(impl)), back_(back) {}

  std::string name() const override {
    return fmt::format("{}.{}()", impl_->name(), back_ ? "inverse_transform" : "transform");
  }

  bool is_function() const override { return !impl_->origin().function_argument.empty(); }

  // An empty batch is enough: the output columns depend only on the types.
  base::Result<std::shared_ptr<const Schema>> learn(const Batch& example) override {
    TRIREME_ASSIGN(auto record, changed(example));
    return Schema::take(std::move(record.schema));
  }

  base::Result<Record> apply(const Batch& batch, plan::Where) override { return changed(batch); }
  std::unique_ptr<plan::Op> again() const override { return std::make_unique<TransformOp>(impl_, back_); }

 private:
  base::Result<Record> changed(const Batch& batch) const {
    inner::Table table(batch.exported());
    TRIREME_TRY(impl_->apply(table, back_));
    return without_dictionaries(std::move(table));
  }

  std::shared_ptr<const inner::PreprocessorImpl> impl_;  // shared with the preprocessor
  bool back_;
};

// A tensor for each column of numbers, and a list for columns with nulls or other types.
base::Result<Dict> columns_as_values(inner::Table table) {
  TRIREME_ASSIGN(const auto batch, batch_of(std::move(table).record()));
  const auto& fields = batch.schema()->fields();
  Dict values;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    auto tensor = batch.tensor(i);
    values[fields[i].name] = tensor ? Value(*std::move(tensor)) : Value(List());
    if (!tensor) others.push_back(i);
  }
  if (others.empty()) return values;
  TRIREME_ASSIGN(auto rows, plan::rows_of(batch));
  for (const std::size_t column : others) {
    List list;
    for (auto& row : rows) list.push_back(std::move(row.begin()[static_cast<std::ptrdiff_t>(column)].second));
    values[fields[column].name] = std::move(list);
  }
  return values;
}

// The implementations of a chain and its parts, in order.
void collect(const Preprocessor& preprocessor, std::vector<std::shared_ptr<const inner::PreprocessorImpl>>& impls) {
  const auto& data = *preprocessor.data();
  if (data.impl) impls.push_back(data.impl);
  for (const auto& each : data.chain) collect(each, impls);
}

std::vector<std::shared_ptr<const inner::PreprocessorImpl>> impls_of(const Preprocessor& preprocessor) {
  std::vector<std::shared_ptr<const inner::PreprocessorImpl>> impls;
  collect(preprocessor, impls);
  return impls;
}

void require_fitted(const Preprocessor& preprocessor, const char* what) {
  const auto status = preprocessor.fit_status();
  if (status == FitStatus::kFitted || status == FitStatus::kNotFittable) return;
  throw PreprocessorNotFittedException(fmt::format(
      "{} has not been fitted: call fit(ds) before {}(), or fit_transform(ds)", preprocessor.describe(), what));
}

inner::Table table_of(const trireme::Batch& batch) {
  data::Record record;
  batch.export_to(&*record.array, &*record.schema);
  return inner::Table(std::move(record));
}

inner::Table table_of(const Dict& columns) { return inner::Table(or_value_error(plan::record_of_columns(columns))); }

Dict transformed(const Preprocessor& preprocessor, inner::Table table) {
  require_fitted(preprocessor, "transform_batch");
  for (const auto& impl : impls_of(preprocessor)) or_value_error(impl->apply(table));
  return or_value_error(columns_as_values(std::move(table)));
}

const inner::PreprocessorImpl& invertible(const Preprocessor& preprocessor, const char* what) {
  if (!preprocessor.data()->impl || preprocessor.name() != "LabelEncoder") {
    throw ValueError(fmt::format("{} has no {}(); only LabelEncoder has one", preprocessor.name(), what));
  }
  require_fitted(preprocessor, what);
  return *preprocessor.data()->impl;
}

Dict inverted(const Preprocessor& preprocessor, inner::Table table) {
  const auto& impl = invertible(preprocessor, "inverse_transform_batch");
  or_value_error(impl.apply(table, true));
  return or_value_error(columns_as_values(std::move(table)));
}

// Reads the columns in the dataset's order before any shuffle: the result does not depend on a shuffle.
base::Result<Dict> learned(const inner::PreprocessorImpl& impl, const Dataset& dataset) {
  const auto columns = impl.learned();
  if (columns.empty()) return impl.learner()->done();
  TRIREME_ASSIGN(const auto schema, dataset.plan()->schema());
  std::vector<std::string> there;
  for (const auto& field : schema->fields()) there.push_back(field.name);
  for (const auto& name : columns) {
    if (std::find(there.begin(), there.end(), name) == there.end()) return inner::no_column(name, impl.name(), there);
  }
  const auto plan = dataset.select_columns(columns).plan();
  TRIREME_ASSIGN(const auto fragments, plan->fragments());
  return plan::with_widest_types(*plan, [&]() -> base::Result<Dict> {
    const auto learner = impl.learner();
    for (std::size_t i = 0; i < fragments.size(); ++i) {
      TRIREME_ASSIGN(const auto input, plan::Input::open(*plan, i, 0), "{}", fragments[i].name);
      while (true) {
        TRIREME_ASSIGN(const auto batch, input->next(kRowsAtOnce), "{}", fragments[i].name);
        if (batch.rows() == 0) break;
        TRIREME_TRY(learner->add(inner::Table(batch.exported())));
      }
    }
    return learner->done();
  });
}

void fit_impl(inner::Data& data, const Dataset& dataset) {
  if (!data.impl->fittable()) return;
  auto fitted = data.impl->unfitted();
  or_value_error(fitted->take(or_value_error(learned(*data.impl, dataset))));
  data.impl = std::move(fitted);
}

void forget_all(const Preprocessor& preprocessor) {
  auto& data = *preprocessor.data();
  for (const auto& each : data.chain) forget_all(each);
  if (data.impl && data.impl->fittable()) data.impl = data.impl->unfitted();
}

void fit_all(const Preprocessor& preprocessor, Dataset dataset) {
  auto& data = *preprocessor.data();
  if (data.impl) return fit_impl(data, dataset);
  for (const auto& each : data.chain) {
    fit_all(each, dataset);
    dataset = each.transform(dataset);
  }
}

}  // namespace

std::string Preprocessor::name() const { return data_->impl ? std::string(data_->impl->name()) : "Chain"; }

std::string Preprocessor::describe() const {
  constexpr std::size_t kShown = 80;
  std::vector<std::string> parts;
  for (const auto& each : data_->chain) parts.push_back(each.describe());
  if (data_->impl) {
    for (const auto& [argument, value] : data_->impl->origin().arguments) {
      std::string text = inner::python_text(value);
      if (text.size() > kShown) text = text.substr(0, kShown - 3) + "...";
      parts.push_back(argument + "=" + text);
    }
  }
  return fmt::format("{}({})", name(), base::join(parts, ", "));
}

std::vector<std::string> Preprocessor::get_input_columns() const {
  return data_->impl ? data_->impl->inputs() : std::vector<std::string>();
}

std::vector<std::string> Preprocessor::get_output_columns() const {
  return data_->impl ? data_->impl->outputs() : std::vector<std::string>();
}

FitStatus Preprocessor::fit_status() const {
  std::set<FitStatus> found;
  for (const auto& impl : impls_of(*this)) {
    if (impl->fittable()) found.insert(impl->stats() ? FitStatus::kFitted : FitStatus::kNotFitted);
  }
  if (found.empty()) return FitStatus::kNotFittable;
  return found.size() == 1 ? *found.begin() : FitStatus::kPartiallyFitted;
}

Preprocessor Preprocessor::fit(const Dataset& dataset) {
  const auto status = fit_status();
  if (status == FitStatus::kNotFittable) return *this;
  if (status != FitStatus::kNotFitted)
    base::log_warning("{} was already fitted: its statistics are replaced", describe());
  forget_all(*this);
  fit_all(*this, dataset);
  return *this;
}

Dataset Preprocessor::transform(const Dataset& dataset) const {
  require_fitted(*this, "transform");
  Dataset made = dataset;
  for (const auto& impl : impls_of(*this)) {
    if (const auto* function = dynamic_cast<const api::BatchMapper*>(impl.get())) made = function->transform(made);
    else made = Dataset(plan::op_plan(made.plan(), std::make_unique<TransformOp>(impl, false)));
  }
  // Reports column errors here if that does not need a call of a function.
  if (!made.plan()->work().costly) or_value_error(made.plan()->schema());
  return made;
}

Dict Preprocessor::transform_batch(const trireme::Batch& batch) const { return transformed(*this, table_of(batch)); }
Dict Preprocessor::transform_batch(const Dict& columns) const { return transformed(*this, table_of(columns)); }

Dataset Preprocessor::inverse_transform(const Dataset& dataset) const {
  invertible(*this, "inverse_transform");
  return Dataset(plan::op_plan(dataset.plan(), std::make_unique<TransformOp>(data_->impl, true)));
}

Dict Preprocessor::inverse_transform_batch(const trireme::Batch& batch) const {
  return inverted(*this, table_of(batch));
}
Dict Preprocessor::inverse_transform_batch(const Dict& columns) const { return inverted(*this, table_of(columns)); }

Dict Preprocessor::stats() const { return data_->impl && data_->impl->stats() ? *data_->impl->stats() : Dict(); }

}  // namespace trireme::data::preprocessors
