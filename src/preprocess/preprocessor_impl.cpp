#include "preprocess/preprocessor_impl.h"

#include <map>

#include "base/check.h"
#include "base/text.h"
#include "preprocess/python_text.h"

namespace trireme::preprocess {
namespace {

using Names = std::vector<std::string_view>;

struct Maker {
  Names arguments;  // in the order of the JSON
  Made (*make)(Arguments& given);
};

const std::map<std::string, Maker, std::less<>> kMakers = {
    {"Categorizer", {{"columns", "dtypes", "output_columns"}, make_categorizer}},
    {"Concatenator", {{"columns", "output_column_name", "dtype", "raise_if_missing", "flatten"}, make_concatenator}},
    {"CountVectorizer", {{"columns", "tokenization_fn", "max_features", "output_columns"}, make_count_vectorizer}},
    {"CustomKBinsDiscretizer",
     {{"columns", "bins", "right", "include_lowest", "duplicates", "dtypes", "output_columns"},
      make_custom_discretizer}},
    {"FeatureHasher", {{"columns", "num_features", "output_column"}, make_feature_hasher}},
    {"HashingVectorizer", {{"columns", "num_features", "tokenization_fn", "output_columns"}, make_hashing_vectorizer}},
    {"LabelEncoder", {{"label_column", "output_column"}, make_label_encoder}},
    {"MaxAbsScaler", {{"columns", "output_columns"}, make_max_abs_scaler}},
    {"MinMaxScaler", {{"columns", "output_columns"}, make_min_max_scaler}},
    {"MultiHotEncoder", {{"columns", "max_categories", "output_columns"}, make_multi_hot_encoder}},
    {"Normalizer", {{"columns", "norm", "output_columns"}, make_normalizer}},
    {"OneHotEncoder", {{"columns", "max_categories", "output_columns"}, make_one_hot_encoder}},
    {"OrdinalEncoder", {{"columns", "encode_lists", "output_columns"}, make_ordinal_encoder}},
    {"PowerTransformer", {{"columns", "power", "method", "output_columns"}, make_power_transformer}},
    {"RobustScaler", {{"columns", "quantile_range", "output_columns", "quantile_precision"}, make_robust_scaler}},
    {"SimpleImputer", {{"columns", "strategy", "fill_value", "output_columns"}, make_simple_imputer}},
    {"StandardScaler", {{"columns", "output_columns"}, make_standard_scaler}},
    {"Tokenizer", {{"columns", "tokenization_fn", "output_columns"}, make_tokenizer}},
    {"UniformKBinsDiscretizer",
     {{"columns", "bins", "right", "include_lowest", "duplicates", "dtypes", "output_columns"},
      make_uniform_discretizer}},
};

}  // namespace

Made make_preprocessor(std::string_view name, const Dict& given, TokenizationFunction function) {
  const auto found = kMakers.find(name);
  if (found == kMakers.end()) {
    std::vector<std::string> names;
    for (const auto& each : kMakers) names.push_back(each.first);
    return base::error("no preprocessor named '{}' in C++; the preprocessors are Chain, {}", name,
                       base::join(names, ", "));
  }
  const auto& [known, maker] = *found;
  TRIREME_ASSIGN(auto arguments, Arguments::of(given, maker.arguments));
  const Value* text = arguments.all().find("tokenization_fn");
  if (text && !text->is_null())
    return base::error("tokenization_fn={}: a function cannot be read from JSON", python_text(*text));
  TRIREME_ASSIGN(auto impl, maker.make(arguments));
  impl->set_origin({known, arguments.all(), function ? "tokenization_fn" : "", std::move(function)});
  return impl;
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

std::unique_ptr<PreprocessorImpl> PreprocessorImpl::unfitted() const {
  return make_preprocessor(origin_.name, origin_.arguments, origin_.tokenization_fn).value();
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
