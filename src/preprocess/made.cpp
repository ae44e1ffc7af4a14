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

std::shared_ptr<inner::Data> made(std::string_view name, const Dict& arguments, TokenizationFunction function = {}) {
  auto impl = inner::make_preprocessor(name, arguments, std::move(function));
  if (!impl) throw ValueError(impl.error().message());
  return std::make_shared<inner::Data>(inner::Data{*std::move(impl)});
}

// The arguments of preprocessors with an output column for each column. `own`: the others.
Dict columns_with(const Names& columns, const Names& output_columns, Dict own = {}) {
  own["columns"] = list_of(columns);
  if (!output_columns.empty()) own["output_columns"] = list_of(output_columns);
  return own;
}

template <typename T>
Dict dict_of(const std::map<std::string, T>& values) {
  Dict dict;
  for (const auto& [name, value] : values) dict[name] = value;
  return dict;
}

template <typename T>
Value or_null(const std::optional<T>& value) {
  return value ? Value(*value) : Value();
}

Dict hot(const Names& columns, const HotEncoderOptions& options) {
  inner::Pairs most;
  for (const auto& [name, number] : options.max_categories) most.emplace_back(name, number);
  return columns_with(columns, options.output_columns, {{"max_categories", inner::encoded_pairs(std::move(most))}});
}

Dict bins_with(const Names& columns, Value bins, const DiscretizerOptions& options) {
  return columns_with(columns, options.output_columns,
                      {{"bins", std::move(bins)},
                       {"right", options.right},
                       {"include_lowest", options.include_lowest},
                       {"duplicates", options.duplicates},
                       {"dtypes", inner::encoded_lists(options.dtypes)}});
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
    : Preprocessor(made("StandardScaler", columns_with(columns, options.output_columns))) {}

MinMaxScaler::MinMaxScaler(const Names& columns, const OutputOptions& options)
    : Preprocessor(made("MinMaxScaler", columns_with(columns, options.output_columns))) {}

MaxAbsScaler::MaxAbsScaler(const Names& columns, const OutputOptions& options)
    : Preprocessor(made("MaxAbsScaler", columns_with(columns, options.output_columns))) {}

RobustScaler::RobustScaler(const Names& columns, const RobustScalerOptions& options)
    : Preprocessor(
          made("RobustScaler",
               columns_with(columns, options.output_columns,
                            {{"quantile_range", List{options.quantile_range.first, options.quantile_range.second}},
                             {"quantile_precision", options.quantile_precision}}))) {}

Normalizer::Normalizer(const Names& columns, const NormalizerOptions& options)
    : Preprocessor(made("Normalizer", columns_with(columns, options.output_columns, {{"norm", options.norm}}))) {}

PowerTransformer::PowerTransformer(const Names& columns, double power, const PowerTransformerOptions& options)
    : Preprocessor(made("PowerTransformer", columns_with(columns, options.output_columns,
                                                         {{"power", power}, {"method", options.method}}))) {}

SimpleImputer::SimpleImputer(const Names& columns, const SimpleImputerOptions& options)
    : Preprocessor(made("SimpleImputer",
                        columns_with(columns, options.output_columns,
                                     {{"strategy", options.strategy}, {"fill_value", encoded(options.fill_value)}}))) {}

OrdinalEncoder::OrdinalEncoder(const Names& columns, const OrdinalEncoderOptions& options)
    : Preprocessor(made("OrdinalEncoder",
                        columns_with(columns, options.output_columns, {{"encode_lists", options.encode_lists}}))) {}

OneHotEncoder::OneHotEncoder(const Names& columns, const HotEncoderOptions& options)
    : Preprocessor(made("OneHotEncoder", hot(columns, options))) {}

MultiHotEncoder::MultiHotEncoder(const Names& columns, const HotEncoderOptions& options)
    : Preprocessor(made("MultiHotEncoder", hot(columns, options))) {}

LabelEncoder::LabelEncoder(const std::string& label_column, const LabelEncoderOptions& options)
    : Preprocessor(
          made("LabelEncoder", {{"label_column", label_column}, {"output_column", or_null(options.output_column)}})) {}

Categorizer::Categorizer(const Names& columns, const CategorizerOptions& options)
    : Preprocessor(made("Categorizer", columns_with(columns, options.output_columns,
                                                    {{"dtypes", inner::encoded_lists(options.dtypes)}}))) {}

Concatenator::Concatenator(const Names& columns, const ConcatenatorOptions& options)
    : Preprocessor(made("Concatenator", {{"columns", list_of(columns)},
                                         {"output_column_name", options.output_column_name},
                                         {"dtype", inner::encoded_dtype(options.dtype)},
                                         {"raise_if_missing", options.raise_if_missing},
                                         {"flatten", options.flatten}})) {}

Tokenizer::Tokenizer(const Names& columns, const TokenizerOptions& options)
    : Preprocessor(made("Tokenizer", columns_with(columns, options.output_columns), options.tokenization_fn)) {}

CountVectorizer::CountVectorizer(const Names& columns, const CountVectorizerOptions& options)
    : Preprocessor(
          made("CountVectorizer",
               columns_with(columns, options.output_columns, {{"max_features", or_null(options.max_features)}}),
               options.tokenization_fn)) {}

HashingVectorizer::HashingVectorizer(const Names& columns, std::int64_t num_features, const TokenizerOptions& options)
    : Preprocessor(made("HashingVectorizer",
                        columns_with(columns, options.output_columns, {{"num_features", num_features}}),
                        options.tokenization_fn)) {}

FeatureHasher::FeatureHasher(const Names& columns, std::int64_t num_features, const std::string& output_column)
    : Preprocessor(
          made("FeatureHasher",
               {{"columns", list_of(columns)}, {"num_features", num_features}, {"output_column", output_column}})) {}

UniformKBinsDiscretizer::UniformKBinsDiscretizer(const Names& columns, const Bins& bins,
                                                 const DiscretizerOptions& options)
    : Preprocessor(
          made("UniformKBinsDiscretizer",
               bins_with(columns, bins.index() == 0 ? Value(std::get<0>(bins)) : Value(dict_of(std::get<1>(bins))),
                         options))) {}

CustomKBinsDiscretizer::CustomKBinsDiscretizer(const Names& columns, const Bins& bins,
                                               const DiscretizerOptions& options)
    : Preprocessor(made("CustomKBinsDiscretizer", bins_with(columns, bins_of(bins), options))) {}

Chain::Chain(std::vector<Preprocessor> preprocessors)
    : Preprocessor(std::make_shared<inner::Data>(inner::Data{nullptr, std::move(preprocessors)})) {
  if (data()->chain.empty()) throw ValueError("Chain(): expected preprocessors");
}

}  // namespace trireme::data::preprocessors
