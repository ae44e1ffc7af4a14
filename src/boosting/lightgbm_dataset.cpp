#include "boosting/lightgbm_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <stdexcept>

namespace trireme::boosting {
namespace {

constexpr double kLightgbmZero = 1e-35;  // smaller values count as 0
constexpr int kRawScore = 1;

// The parameters that concern the bins. LightGBM's Python package passes no others either: with min_data_in_leaf, for
// example, it would drop other features.
const std::set<std::string> kDatasetParams{"bin_construct_sample_cnt",
                                           "subsample_for_bin",
                                           "categorical_feature",
                                           "cat_feature",
                                           "categorical_column",
                                           "cat_column",
                                           "categorical_features",
                                           "data_random_seed",
                                           "data_seed",
                                           "enable_bundle",
                                           "is_enable_bundle",
                                           "bundle",
                                           "feature_pre_filter",
                                           "forcedbins_filename",
                                           "is_enable_sparse",
                                           "is_sparse",
                                           "enable_sparse",
                                           "sparse",
                                           "linear_tree",
                                           "linear_trees",
                                           "max_bin",
                                           "max_bins",
                                           "max_bin_by_feature",
                                           "min_data_in_bin",
                                           "pre_partition",
                                           "is_pre_partition",
                                           "use_missing",
                                           "zero_as_missing"};

std::string plain_text(const Value& value) {
  if (const auto* text = value.get_if<std::string>()) return *text;
  if (value.get_if<bool>()) return value.as_bool() ? "true" : "false";
  if (value.get_if<std::int64_t>()) return std::to_string(value.as_int());
  if (const auto* list = value.get_if<List>()) {
    std::string all;
    for (const auto& each : *list) all += (all.empty() ? "" : ",") + plain_text(each);
    return all;
  }
  char buffer[40];
  std::snprintf(buffer, sizeof buffer, "%.17g", value.as_double());
  return buffer;
}

std::string dataset_text(const Dict& params) {
  Dict chosen;
  for (const auto& [name, value] : params) {
    if (kDatasetParams.contains(name)) chosen[name] = value;
  }
  return lightgbm_text(chosen);
}

// The values of sampled rows, column by column, without zeros, as LightGBM wants them.
struct SampledColumns {
  std::vector<std::vector<double>> values;
  std::vector<std::vector<int>> indices;
};

SampledColumns sampled(WorkerRows& rows, const std::vector<std::int32_t>& chosen) {
  const std::size_t width = rows.columns().features.size();
  SampledColumns columns{std::vector<std::vector<double>>(width), std::vector<std::vector<int>>(width)};
  rows.rewind();
  std::int64_t first = 0;
  std::size_t next = 0;
  while (const RowBatch* batch = rows.next()) {
    for (; next < chosen.size() && chosen[next] < first + batch->rows; ++next) {
      const double* const row = batch->matrix.data() + static_cast<std::size_t>(chosen[next] - first) * width;
      for (std::size_t column = 0; column < width; ++column) {
        if (!(std::abs(row[column]) > kLightgbmZero) && !std::isnan(row[column])) continue;
        columns.values[column].push_back(row[column]);
        columns.indices[column].push_back(static_cast<int>(next));
      }
    }
    first += batch->rows;
  }
  return columns;
}

std::vector<std::int32_t> group_sizes(const std::vector<std::int32_t>& groups) {
  std::vector<std::int32_t> sizes;
  for (std::size_t row = 0; row < groups.size(); ++row) {
    if (row == 0 || groups[row] != groups[row - 1]) sizes.push_back(0);
    ++sizes.back();
  }
  return sizes;
}

}  // namespace

std::string lightgbm_text(const Dict& params) {
  std::string text;
  for (const auto& [name, value] : params) {
    if (!value.is_null()) text += (text.empty() ? "" : " ") + name + "=" + plain_text(value);
  }
  return text;
}

LightgbmModel::LightgbmModel(const LightgbmLibrary& library, const std::string& path) : library_(library) {
  library_.check(library_.LGBM_BoosterCreateFromModelfile(path.c_str(), &rounds_, &handle_));
}

std::vector<double> LightgbmModel::raw_scores(const RowBatch& batch) const {
  const auto rows = static_cast<std::int32_t>(batch.rows);
  std::int64_t size = 0;
  library_.check(library_.LGBM_BoosterCalcNumPredict(handle_, rows, kRawScore, 0, -1, &size));
  std::vector<double> scores(static_cast<std::size_t>(size));
  library_.check(library_.LGBM_BoosterPredictForMat(
      handle_, batch.matrix.data(), kLightgbmFloat64, rows,
      static_cast<std::int32_t>(batch.matrix.size() / static_cast<std::size_t>(rows)), 1, kRawScore, 0, -1, "", &size,
      scores.data()));
  return scores;
}

LightgbmDataset::LightgbmDataset(const LightgbmLibrary& library, const std::string& dataset, const RowColumns& columns,
                                 const Dict& params, const LightgbmDataset* reference, const LightgbmModel* earlier)
    : library_(library) {
  WorkerRows rows(dataset, columns, reference != nullptr);  // LightGBM does not combine metrics
  const std::int64_t count = rows.count();
  if (reference != nullptr) {
    library_.check(library_.LGBM_DatasetCreateByReference(reference->handle_, count, &handle_));
  } else {
    create(rows, count, dataset_text(params));
  }
  push(rows, earlier);
  std::vector<const char*> names;
  for (const auto& name : columns.features) names.push_back(name.c_str());
  library_.check(library_.LGBM_DatasetSetFeatureNames(handle_, names.data(), static_cast<int>(names.size())));
}

void LightgbmDataset::create(WorkerRows& rows, std::int64_t count, const std::string& params) {
  const auto total = static_cast<std::int32_t>(count);
  int sample = 0;
  library_.check(library_.LGBM_GetSampleCount(total, params.c_str(), &sample));
  std::vector<std::int32_t> chosen(static_cast<std::size_t>(sample));
  std::int32_t found = 0;
  library_.check(library_.LGBM_SampleIndices(total, params.c_str(), chosen.data(), &found));
  SampledColumns columns = sampled(rows, chosen);
  std::vector<double*> values;
  std::vector<int*> indices;
  std::vector<int> counts;
  for (std::size_t column = 0; column < columns.values.size(); ++column) {
    values.push_back(columns.values[column].data());
    indices.push_back(columns.indices[column].data());
    counts.push_back(static_cast<int>(columns.values[column].size()));
  }
  library_.check(library_.LGBM_DatasetCreateFromSampledColumn(values.data(), indices.data(),
                                                              static_cast<std::int32_t>(values.size()), counts.data(),
                                                              sample, total, count, params.c_str(), &handle_));
}

void LightgbmDataset::push(WorkerRows& rows, const LightgbmModel* earlier) {
  std::vector<float> labels, weights;
  std::vector<std::int32_t> groups;
  std::vector<double> scores;
  const auto width = static_cast<std::int32_t>(rows.columns().features.size());
  std::int32_t first = 0;
  rows.rewind();
  while (const RowBatch* batch = rows.next()) {
    const auto size = static_cast<std::int32_t>(batch->rows);
    library_.check(library_.LGBM_DatasetPushRows(handle_, batch->matrix.data(), kLightgbmFloat64, size, width, first));
    first += size;
    labels.insert(labels.end(), batch->labels.begin(), batch->labels.end());
    weights.insert(weights.end(), batch->weights.begin(), batch->weights.end());
    groups.insert(groups.end(), batch->groups.begin(), batch->groups.end());
    if (earlier == nullptr) continue;
    const std::vector<double> more = earlier->raw_scores(*batch);
    scores.insert(scores.end(), more.begin(), more.end());
  }
  const auto set = [this](const char* field, const auto& data, int type) {
    library_.check(library_.LGBM_DatasetSetField(handle_, field, data.data(), static_cast<int>(data.size()), type));
  };
  set("label", labels, kLightgbmFloat32);
  if (std::any_of(weights.begin(), weights.end(), [](float weight) { return weight != 1; })) {
    set("weight", weights, kLightgbmFloat32);
  }
  if (!groups.empty()) set("group", group_sizes(groups), kLightgbmInt32);
  if (scores.empty()) return;
  const std::size_t count = labels.size(), classes = scores.size() / count;
  std::vector<double> by_class(scores.size());
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t each = 0; each < classes; ++each) by_class[each * count + row] = scores[row * classes + each];
  }
  set("init_score", by_class, kLightgbmFloat64);
}

}  // namespace trireme::boosting
