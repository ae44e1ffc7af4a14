#include "preprocess/preprocessor_impl.h"

#include <map>

#include "base/check.h"
#include "base/text.h"

namespace trireme::preprocess {
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

Made read_preprocessor(const Dict& described) {
  const auto not_ours = [] { return base::error("this JSON was not written by Preprocessor.serialize()"); };
  const Value* name = described.find("preprocessor");
  const Value* arguments = described.find("arguments");
  if (!name || !name->get_if<std::string>() || !arguments || !arguments->get_if<Dict>()) return not_ours();
  TRIREME_ASSIGN(auto impl, make_preprocessor(name->as_string(), arguments->as_dict()));
  const Value* fitted = described.find("fitted");
  if (!fitted || fitted->is_null()) return impl;
  const Value* stats = fitted->get_if<Dict>() ? fitted->as_dict().find("stats_") : nullptr;
  if (!stats || !stats->get_if<Dict>() || !impl->fittable()) return not_ours();
  TRIREME_TRY(impl->take(stats->as_dict()));
  return impl;
}

std::unique_ptr<Learner> PreprocessorImpl::learner() const {
  TRIREME_CHECK(!fittable(), "{} has no learner", name());
  return nullptr;
}

base::Result<void> PreprocessorImpl::take(Dict stats) {
  TRIREME_TRY(understand(stats), "invalid statistics of {}", name());
  stats_ = std::move(stats);
  return {};
}

base::Result<Changes> PreprocessorImpl::change_back(const Table&) const {
  return base::error("{} has no inverse_transform(); only LabelEncoder has one", name());
}

base::Result<void> PreprocessorImpl::apply(Table& table, bool back) const {
  TRIREME_ASSIGN(auto changes, back ? change_back(table) : change(table));
  table.apply(std::move(changes));
  return {};
}

}  // namespace trireme::preprocess
