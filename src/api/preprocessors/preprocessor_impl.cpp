#include "api/preprocessors/preprocessor_impl.h"

#include <map>

#include "api/preprocessors/transform_op.h"
#include "base/text.h"
#include "plan/ops.h"

namespace trireme::api::preprocessing {
namespace {

using Make = Made (*)(const Dict& arguments);

const std::map<std::string, Make, std::less<>> kKinds = {
    {"Categorizer", make_categorizer},
    {"Concatenator", make_concatenator},
    {"CountVectorizer", [](const Dict& arguments) { return make_count_vectorizer(arguments, {}); }},
    {"CustomKBinsDiscretizer", make_custom_discretizer},
    {"FeatureHasher", make_feature_hasher},
    {"HashingVectorizer", [](const Dict& arguments) { return make_hashing_vectorizer(arguments, {}); }},
    {"LabelEncoder", make_label_encoder},
    {"MaxAbsScaler", make_max_abs_scaler},
    {"MinMaxScaler", make_min_max_scaler},
    {"MultiHotEncoder", make_multi_hot_encoder},
    {"Normalizer", make_normalizer},
    {"OneHotEncoder", make_one_hot_encoder},
    {"OrdinalEncoder", make_ordinal_encoder},
    {"PowerTransformer", make_power_transformer},
    {"RobustScaler", make_robust_scaler},
    {"SimpleImputer", make_simple_imputer},
    {"StandardScaler", make_standard_scaler},
    {"Tokenizer", [](const Dict& arguments) { return make_tokenizer(arguments, {}); }},
    {"UniformKBinsDiscretizer", make_uniform_discretizer},
};

}  // namespace

Made make_preprocessor(const std::string& name, const Dict& arguments) {
  const auto found = kKinds.find(name);
  if (found != kKinds.end()) return found->second(arguments);
  std::vector<std::string> names;
  for (const auto& each : kKinds) names.push_back(each.first);
  return base::error("no preprocessor named '{}' in C++; the preprocessors are Chain, {}", name,
                     base::join(names, ", "));
}

base::Result<Dict> PreprocessorImpl::learn(const Dataset&) const { return base::error("{} cannot be fitted", name()); }

base::Result<void> PreprocessorImpl::take(Dict stats) {
  TRIREME_TRY(understand(stats), "invalid statistics of {}", name());
  stats_ = std::move(stats);
  return {};
}

base::Result<Changes> PreprocessorImpl::change_back(const Table&) const {
  return base::error("{} has no inverse_transform(); only LabelEncoder has one", name());
}

Dataset PreprocessorImpl::transform(const Dataset& dataset, std::shared_ptr<const PreprocessorImpl> self) const {
  return Dataset(op_plan(dataset.plan(), transform_op(std::move(self), false)));
}

}  // namespace trireme::api::preprocessing
