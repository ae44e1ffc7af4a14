#include "boosting/lightgbm_dataset.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <memory>
#include <set>
#include <stdexcept>
#include <utility>

#include "boosting/feature_stream.h"

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

// The features row by row. `storage` may keep them.
const std::vector<double>& matrix_of(const RowBatch& batch, std::vector<double>& storage) {
  if (!batch.columns) return batch.matrix;
  storage = batch.columns->matrix();
  return storage;
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
  std::vector<double> storage;
  while (const RowBatch* batch = rows.next()) {
    const std::vector<double>& matrix = matrix_of(*batch, storage);
    for (; next < chosen.size() && chosen[next] < first + batch->rows; ++next) {
      const double* const row = matrix.data() + static_cast<std::size_t>(chosen[next] - first) * width;
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

std::vector<double> LightgbmModel::raw_scores(const std::vector<double>& matrix, std::int64_t rows) const {
  const auto height = static_cast<std::int32_t>(rows);
  std::int64_t size = 0;
  library_.check(library_.LGBM_BoosterCalcNumPredict(handle_, height, kRawScore, 0, -1, &size));
  std::vector<double> scores(static_cast<std::size_t>(size));
  const auto width = static_cast<std::int32_t>(matrix.size() / static_cast<std::size_t>(rows));
  library_.check(library_.LGBM_BoosterPredictForMat(handle_, matrix.data(), kLightgbmFloat64, height, width, 1,
                                                    kRawScore, 0, -1, "", &size, scores.data()));
  return scores;
}

// What a dataset has besides the features.
class LightgbmDataset::Fields {
 public:
  explicit Fields(const LightgbmModel* earlier) : earlier_(earlier) {}

  void add(const RowBatch& batch, const std::vector<double>* matrix) {
    labels_.insert(labels_.end(), batch.labels.begin(), batch.labels.end());
    weights_.insert(weights_.end(), batch.weights.begin(), batch.weights.end());
    groups_.insert(groups_.end(), batch.groups.begin(), batch.groups.end());
    if (earlier_ == nullptr) return;
    std::vector<double> storage;
    const std::vector<double> more =
        earlier_->raw_scores(matrix != nullptr ? *matrix : matrix_of(batch, storage), batch.rows);
    scores_.insert(scores_.end(), more.begin(), more.end());
  }
  void set(LightgbmDataset& dataset) const;

 private:
  const LightgbmModel* earlier_;
  std::vector<float> labels_, weights_;
  std::vector<std::int32_t> groups_;
  std::vector<double> scores_;
};

void LightgbmDataset::Fields::set(LightgbmDataset& dataset) const {
  const auto set = [&dataset](const char* field, const auto& data, int type) {
    const LightgbmLibrary& library = dataset.library_;
    library.check(
        library.LGBM_DatasetSetField(dataset.handle_, field, data.data(), static_cast<int>(data.size()), type));
  };
  set("label", labels_, kLightgbmFloat32);
  if (std::any_of(weights_.begin(), weights_.end(), [](float weight) { return weight != 1; })) {
    set("weight", weights_, kLightgbmFloat32);
  }
  if (!groups_.empty()) set("group", group_sizes(groups_), kLightgbmInt32);
  if (scores_.empty()) return;
  const std::size_t count = labels_.size(), classes = scores_.size() / count;
  std::vector<double> by_class(scores_.size());
  for (std::size_t row = 0; row < count; ++row) {
    for (std::size_t each = 0; each < classes; ++each) by_class[each * count + row] = scores_[row * classes + each];
  }
  set("init_score", by_class, kLightgbmFloat64);
}

LightgbmDataset::LightgbmDataset(const LightgbmLibrary& library, const std::string& dataset, const RowColumns& columns,
                                 const Dict& params, const LightgbmDataset* reference, const LightgbmModel* earlier)
    : library_(library) {
  WorkerRows rows(dataset, columns, reference != nullptr);  // LightGBM does not combine metrics
  const std::int64_t count = rows.count();
  Fields fields(earlier);
  if (rows.are_kept() && library_.LGBM_DatasetCreateFromArrowStream != nullptr) {
    read_columns(rows, dataset_text(params), reference, fields);
  } else {
    if (reference != nullptr) {
      library_.check(library_.LGBM_DatasetCreateByReference(reference->handle_, count, &handle_));
    } else {
      create(rows, count, dataset_text(params));
    }
    push(rows, fields);
  }
  fields.set(*this);
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

// Without a copy.
void LightgbmDataset::read_columns(WorkerRows& rows, const std::string& params, const LightgbmDataset* reference,
                                   Fields& fields) {
  std::vector<std::unique_ptr<const FeatureColumns>> columns;
  for (RowBatch& batch : rows.taken()) {
    fields.add(batch, nullptr);
    columns.push_back(std::move(batch.columns));
  }
  ArrowArrayStream stream = feature_stream(std::move(columns), rows.columns().features);
  const int code = library_.LGBM_DatasetCreateFromArrowStream(
      &stream, params.c_str(), reference == nullptr ? nullptr : reference->handle_, &handle_);
  if (stream.release != nullptr) stream.release(&stream);
  library_.check(code);
}

void LightgbmDataset::push(WorkerRows& rows, Fields& fields) {
  const auto width = static_cast<std::int32_t>(rows.columns().features.size());
  std::int32_t first = 0;
  std::vector<double> storage;
  rows.rewind();
  while (const RowBatch* batch = rows.next()) {
    const std::vector<double>& matrix = matrix_of(*batch, storage);
    const auto size = static_cast<std::int32_t>(batch->rows);
    library_.check(library_.LGBM_DatasetPushRows(handle_, matrix.data(), kLightgbmFloat64, size, width, first));
    first += size;
    fields.add(*batch, &matrix);
  }
}

}  // namespace trireme::boosting
