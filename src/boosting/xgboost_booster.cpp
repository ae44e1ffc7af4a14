#include "boosting/xgboost_booster.h"

#include <cstdio>
#include <cstdlib>

#include "boosting/json_text.h"
#include "trireme/context.h"

namespace trireme::boosting {
namespace {

constexpr const char* kCategories = "trireme_categories";  // as in Python

std::string text_of(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (value.get_if<bool>()) return value.as_bool() ? "true" : "false";
  if (value.get_if<std::int64_t>()) return std::to_string(value.as_int());
  if (value.is_number()) {
    char buffer[40];
    std::snprintf(buffer, sizeof buffer, "%.17g", value.as_double());
    return buffer;
  }
  return to_json(value);  // of lists and dicts, such as interaction_constraints
}

// XGBoost's Python package averages the metrics over the ranks. They are equal, but the last bit may change, and the
// best metric is part of the model.
double averaged(double metric) {
  double sum = metric;
  for (int rank = 1; rank < context().world_size; ++rank) sum += metric;
  return sum / context().world_size;
}

}  // namespace

XgboostBooster::XgboostBooster(const XgboostLibrary& library, std::vector<Handle> matrices, const Config& config,
                               const RowColumns& columns)
    : library_(library), matrices_(std::move(matrices)), params_(config["params"].as_dict()), columns_(columns) {
  create();
}

void XgboostBooster::create() {
  library_.check(library_.XGBoosterCreate(matrices_.data(), matrices_.size(), &handle_));
  configure();
}

void XgboostBooster::configure() {
  for (const auto& [name, value] : params_) {
    if (const auto* list = value.get_if<List>(); list != nullptr && name == "eval_metric") {
      for (const auto& each : *list)
        library_.check(library_.XGBoosterSetParam(handle_, name.c_str(), text_of(each).c_str()));
    } else {
      library_.check(library_.XGBoosterSetParam(handle_, name.c_str(), text_of(value).c_str()));
    }
  }
  std::vector<const char*> names;
  for (const auto& feature : columns_.features) names.push_back(feature.c_str());
  std::vector<const char*> types = feature_types(columns_);
  library_.check(library_.XGBoosterSetStrFeatureInfo(handle_, "feature_name", names.data(), names.size()));
  library_.check(library_.XGBoosterSetStrFeatureInfo(handle_, "feature_type", types.data(), types.size()));
  if (!columns_.categories.empty()) set_attribute(kCategories, to_json(columns_.categories));
}

void XgboostBooster::load(const std::string& path) {
  library_.check(library_.XGBoosterLoadModel(handle_, path.c_str()));
  configure();
}

void XgboostBooster::save(const std::string& path) const {
  library_.check(library_.XGBoosterSaveModel(handle_, path.c_str()));
}

void XgboostBooster::forget_random_numbers() {
  std::uint64_t size = 0;
  const char* data = nullptr;
  library_.check(library_.XGBoosterSaveModelToBuffer(handle_, "{\"format\": \"ubj\"}", &size, &data));
  const std::string model(data, size);
  library_.check(library_.XGBoosterFree(handle_));
  handle_ = nullptr;
  library_.check(library_.XGBoosterCreate(matrices_.data(), matrices_.size(), &handle_));
  library_.check(library_.XGBoosterLoadModelFromBuffer(handle_, model.data(), model.size()));
  configure();
}

int XgboostBooster::rounds() const {
  int rounds = 0;
  library_.check(library_.XGBoosterBoostedRounds(handle_, &rounds));
  return rounds;
}

void XgboostBooster::update(int round) {
  library_.check(library_.XGBoosterUpdateOneIter(handle_, round, matrices_.front()));
}

// XGBoost returns "[3]\tvalid-logloss:0.53\tvalid-auc:0.81".
Metrics XgboostBooster::evaluate(int round, const std::vector<std::string>& names) {
  if (names.empty()) return {};
  std::vector<const char*> pointers;
  for (const auto& name : names) pointers.push_back(name.c_str());
  std::vector<Handle> evaluated(matrices_.end() - static_cast<std::ptrdiff_t>(names.size()), matrices_.end());
  const char* text = nullptr;
  library_.check(library_.XGBoosterEvalOneIter(handle_, round, evaluated.data(), pointers.data(), names.size(), &text));
  Metrics metrics;
  const std::string line = text;
  for (std::size_t tab = line.find('\t'); tab != std::string::npos;) {
    const std::size_t end = line.find('\t', tab + 1);
    const std::string item = line.substr(tab + 1, end == std::string::npos ? end : end - tab - 1);
    const std::size_t colon = item.rfind(':');
    metrics[item.substr(0, colon)] = averaged(std::strtod(item.c_str() + colon + 1, nullptr));
    tab = end;
  }
  return metrics;
}

void XgboostBooster::set_attribute(const std::string& name, const std::string& value) {
  library_.check(library_.XGBoosterSetAttr(handle_, name.c_str(), value.c_str()));
}

}  // namespace trireme::boosting
