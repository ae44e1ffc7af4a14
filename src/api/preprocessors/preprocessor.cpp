#include <algorithm>
#include <set>

#include "api/preprocessors/preprocessor_impl.h"
#include "api/preprocessors/python_text.h"
#include "api/preprocessors/transform_op.h"
#include "base/log.h"
#include "base/text.h"
#include "plan/ops.h"
#include "plan/plan.h"
#include "plan/rows.h"
#include "plan/value_columns.h"
#include "trireme/preprocessors.h"

namespace trireme::data::preprocessors {
namespace {

namespace inner = api::preprocessing;

template <typename T>
T or_value_error(base::Result<T> result) {
  if (!result) throw ValueError(result.error().message());
  if constexpr (!std::is_void_v<T>) return std::move(result).value();
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
  api::Record record;
  batch.export_to(&*record.array, &*record.schema);
  return inner::Table(std::move(record));
}

inner::Table table_of(const Dict& columns) { return inner::Table(or_value_error(api::record_of_columns(columns))); }

Dict transformed(const Preprocessor& preprocessor, inner::Table table) {
  require_fitted(preprocessor, "transform_batch");
  for (const auto& impl : impls_of(preprocessor)) table.apply(or_value_error(impl->change(table)));
  return or_value_error(inner::columns_as_values(std::move(table)));
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
  table.apply(or_value_error(impl.change_back(table)));
  return or_value_error(inner::columns_as_values(std::move(table)));
}

void fit_impl(inner::Data& data, const Dataset& dataset) {
  if (!data.impl->fittable()) return;
  auto fitted = data.impl->clone();
  or_value_error(fitted->take(or_value_error(data.impl->learn(dataset))));
  data.impl = std::move(fitted);
}

void forget_all(const Preprocessor& preprocessor) {
  auto& data = *preprocessor.data();
  for (const auto& each : data.chain) forget_all(each);
  if (!data.impl) return;
  auto forgetful = data.impl->clone();
  forgetful->forget();
  data.impl = std::move(forgetful);
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
    for (const auto& [argument, value] : data_->impl->arguments()) {
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
  for (const auto& impl : impls_of(*this)) made = impl->transform(made, impl);
  // Reports column errors here if that does not need a call of a function.
  if (!made.plan()->work().costly) or_value_error(made.plan()->schema());
  return made;
}

Dict Preprocessor::transform_batch(const trireme::Batch& batch) const { return transformed(*this, table_of(batch)); }
Dict Preprocessor::transform_batch(const Dict& columns) const { return transformed(*this, table_of(columns)); }

Dataset Preprocessor::inverse_transform(const Dataset& dataset) const {
  invertible(*this, "inverse_transform");
  return Dataset(api::op_plan(dataset.plan(), inner::transform_op(data_->impl, true)));
}

Dict Preprocessor::inverse_transform_batch(const trireme::Batch& batch) const {
  return inverted(*this, table_of(batch));
}
Dict Preprocessor::inverse_transform_batch(const Dict& columns) const { return inverted(*this, table_of(columns)); }

Dict Preprocessor::stats() const { return data_->impl && data_->impl->stats() ? *data_->impl->stats() : Dict(); }

}  // namespace trireme::data::preprocessors
