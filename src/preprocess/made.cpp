#include "preprocess/arguments.h"
#include "preprocess/preprocessor_impl.h"
#include "preprocess/state_json.h"
#include "trireme/preprocessors.h"

// Converts options of a program to the arguments of the JSON, so that both are checked in one place.

namespace trireme::data::preprocessors {
namespace {

namespace inner = preprocess;
using inner::encoded;
using inner::list_of;
using inner::list_or_null;

std::shared_ptr<inner::Data> checked(inner::Made made) {
  if (!made) throw ValueError(made.error().message());
  return std::make_shared<inner::Data>(inner::Data{*std::move(made)});
}

template <typename T>
Dict dict_of(const std::map<std::string, T>& values) {
  Dict dict;
  for (const auto& [name, value] : values) dict[name] = value;
  return dict;
}

Value lists_of(const std::map<std::string, List>& lists) {
  inner::Pairs pairs;
  for (const auto& [name, list] : lists) {
    List items;
    for (const auto& each : list) items.push_back(encoded(each));
    pairs.emplace_back(name, std::move(items));
  }
  return inner::encoded_pairs(std::move(pairs));
}

Dict in_out(const Names& columns, const OutputOptions& options) {
  return {{"columns", list_of(columns)}, {"output_columns", list_or_null(options.output_columns)}};
}

Dict hot(const Names& columns, const HotEncoderOptions& options) {
  inner::Pairs most;
  for (const auto& [name, number] : options.max_categories) most.emplace_back(name, number);
  return {{"columns", list_of(columns)},
          {"max_categories", inner::encoded_pairs(std::move(most))},
          {"output_columns", list_or_null(options.output_columns)}};
}

Dict bins_with(const Names& columns, Value bins, const DiscretizerOptions& options) {
  return {{"columns", list_of(columns)},
          {"bins", std::move(bins)},
          {"right", options.right},
          {"include_lowest", options.include_lowest},
          {"duplicates", options.duplicates},
          {"dtypes", lists_of(options.dtypes)},
          {"output_columns", list_or_null(options.output_columns)}};
}

List edges_of(const std::vector<double>& edges) { return List(edges.begin(), edges.end()); }

Value bins_of(const CustomKBinsDiscretizer::Bins& bins) {
  if (const auto* edges = std::get_if<CustomKBinsDiscretizer::Edges>(&bins)) return edges_of(*edges);
  Dict dict;
  for (const auto& [name, edges] : std::get<1>(bins)) dict[name] = edges_of(edges);
  return dict;
}

}  // namespace

StandardScaler::StandardScaler(const Names& columns, const OutputOptions& options)
    : Preprocessor(checked(inner::make_standard_scaler(in_out(columns, options)))) {}

MinMaxScaler::MinMaxScaler(const Names& columns, const OutputOptions& options)
    : Preprocessor(checked(inner::make_min_max_scaler(in_out(columns, options)))) {}

MaxAbsScaler::MaxAbsScaler(const Names& columns, const OutputOptions& options)
    : Preprocessor(checked(inner::make_max_abs_scaler(in_out(columns, options)))) {}

RobustScaler::RobustScaler(const Names& columns, const RobustScalerOptions& options)
    : Preprocessor(checked(inner::make_robust_scaler(
          {{"columns", list_of(columns)},
           {"quantile_range", encoded(List{options.quantile_range.first, options.quantile_range.second})},
           {"output_columns", list_or_null(options.output_columns)},
           {"quantile_precision", options.quantile_precision}}))) {}

Normalizer::Normalizer(const Names& columns, const NormalizerOptions& options)
    : Preprocessor(checked(inner::make_normalizer({{"columns", list_of(columns)},
                                                   {"norm", options.norm},
                                                   {"output_columns", list_or_null(options.output_columns)}}))) {}

PowerTransformer::PowerTransformer(const Names& columns, double power, const PowerTransformerOptions& options)
    : Preprocessor(checked(inner::make_power_transformer({{"columns", list_of(columns)},
                                                          {"power", power},
                                                          {"method", options.method},
                                                          {"output_columns", list_or_null(options.output_columns)}}))) {
}

SimpleImputer::SimpleImputer(const Names& columns, const SimpleImputerOptions& options)
    : Preprocessor(checked(inner::make_simple_imputer({{"columns", list_of(columns)},
                                                       {"strategy", options.strategy},
                                                       {"fill_value", encoded(options.fill_value)},
                                                       {"output_columns", list_or_null(options.output_columns)}}))) {}

OrdinalEncoder::OrdinalEncoder(const Names& columns, const OrdinalEncoderOptions& options)
    : Preprocessor(checked(inner::make_ordinal_encoder({{"columns", list_of(columns)},
                                                        {"encode_lists", options.encode_lists},
                                                        {"output_columns", list_or_null(options.output_columns)}}))) {}

OneHotEncoder::OneHotEncoder(const Names& columns, const HotEncoderOptions& options)
    : Preprocessor(checked(inner::make_one_hot_encoder(hot(columns, options)))) {}

MultiHotEncoder::MultiHotEncoder(const Names& columns, const HotEncoderOptions& options)
    : Preprocessor(checked(inner::make_multi_hot_encoder(hot(columns, options)))) {}

LabelEncoder::LabelEncoder(const std::string& label_column, const LabelEncoderOptions& options)
    : Preprocessor(checked(inner::make_label_encoder(
          {{"label_column", label_column},
           {"output_column", options.output_column ? Value(*options.output_column) : Value()}}))) {}

Categorizer::Categorizer(const Names& columns, const CategorizerOptions& options)
    : Preprocessor(checked(inner::make_categorizer({{"columns", list_of(columns)},
                                                    {"dtypes", lists_of(options.dtypes)},
                                                    {"output_columns", list_or_null(options.output_columns)}}))) {}

Concatenator::Concatenator(const Names& columns, const ConcatenatorOptions& options)
    : Preprocessor(checked(inner::make_concatenator({{"columns", list_of(columns)},
                                                     {"output_column_name", options.output_column_name},
                                                     {"dtype", inner::encoded_dtype(options.dtype)},
                                                     {"raise_if_missing", options.raise_if_missing},
                                                     {"flatten", options.flatten}}))) {}

Tokenizer::Tokenizer(const Names& columns, const TokenizerOptions& options)
    : Preprocessor(checked(inner::make_tokenizer(in_out(columns, {options.output_columns}), options.tokenization_fn))) {
}

CountVectorizer::CountVectorizer(const Names& columns, const CountVectorizerOptions& options)
    : Preprocessor(checked(
          inner::make_count_vectorizer({{"columns", list_of(columns)},
                                        {"max_features", options.max_features ? Value(*options.max_features) : Value()},
                                        {"output_columns", list_or_null(options.output_columns)}},
                                       options.tokenization_fn))) {}

HashingVectorizer::HashingVectorizer(const Names& columns, std::int64_t num_features, const TokenizerOptions& options)
    : Preprocessor(checked(inner::make_hashing_vectorizer({{"columns", list_of(columns)},
                                                           {"num_features", num_features},
                                                           {"output_columns", list_or_null(options.output_columns)}},
                                                          options.tokenization_fn))) {}

FeatureHasher::FeatureHasher(const Names& columns, std::int64_t num_features, const std::string& output_column)
    : Preprocessor(checked(inner::make_feature_hasher(
          {{"columns", list_of(columns)}, {"num_features", num_features}, {"output_column", output_column}}))) {}

UniformKBinsDiscretizer::UniformKBinsDiscretizer(const Names& columns, const Bins& bins,
                                                 const DiscretizerOptions& options)
    : Preprocessor(checked(inner::make_uniform_discretizer(bins_with(
          columns, bins.index() == 0 ? Value(std::get<0>(bins)) : Value(dict_of(std::get<1>(bins))), options)))) {}

CustomKBinsDiscretizer::CustomKBinsDiscretizer(const Names& columns, const Bins& bins,
                                               const DiscretizerOptions& options)
    : Preprocessor(checked(inner::make_custom_discretizer(bins_with(columns, bins_of(bins), options)))) {}

Chain::Chain(std::vector<Preprocessor> preprocessors)
    : Preprocessor(std::make_shared<inner::Data>(inner::Data{nullptr, std::move(preprocessors)})) {
  if (data()->chain.empty()) throw ValueError("Chain(): expected preprocessors");
}

}  // namespace trireme::data::preprocessors
