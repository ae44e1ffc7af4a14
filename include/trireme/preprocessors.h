#pragma once

#include <concepts>
#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <stdexcept>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "trireme/data.h"
#include "trireme/export.h"
#include "trireme/value.h"

// What a model needs to know about its data before it sees any: means, categories, words. Found out by fit(), applied
// by transform(), and written as JSON that trireme.data.preprocessors of Python reads and writes as well.
//
//   using namespace trireme::data::preprocessors;
//   Chain prepare(SimpleImputer({"age"}), StandardScaler({"age"}), OrdinalEncoder({"town"}));
//   auto people = prepare.fit_transform(rows);
//   prepare.save(folder);  // of a checkpoint
//
// Arguments that make no sense, and columns that do not fit, throw ValueError.

namespace trireme {

namespace api::preprocessing {
class Kind;
struct Data;
}  // namespace api::preprocessing

namespace data::preprocessors {

enum class FitStatus { kNotFittable, kNotFitted, kPartiallyFitted, kFitted };

// transform() before fit().
class TRIREME_API PreprocessorNotFittedException : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Any of those below. A handle: copies share what was learned.
class TRIREME_API Preprocessor {
 public:
  explicit Preprocessor(std::shared_ptr<api::preprocessing::Data> data) : data_(std::move(data)) {}

  // "StandardScaler".
  std::string name() const;
  // "StandardScaler(columns=['age'], output_columns=['age'])".
  std::string describe() const;
  std::vector<std::string> get_input_columns() const;
  std::vector<std::string> get_output_columns() const;

  FitStatus fit_status() const;
  // Reads the columns that it is about once. What it knew before is forgotten. Returns itself.
  Preprocessor fit(const Dataset& dataset);
  // The dataset with this done to its batches while they are read.
  Dataset transform(const Dataset& dataset) const;
  Dataset fit_transform(const Dataset& dataset) { return fit(dataset).transform(dataset); }
  // Columns: tensors of shape [rows, ...], or lists where there are nulls or no numbers.
  Dict transform_batch(const trireme::Batch& batch) const;
  Dict transform_batch(const Dict& columns) const;
  // LabelEncoder's: the labels again, in label_column, from the numbers in output_column.
  Dataset inverse_transform(const Dataset& dataset) const;
  Dict inverse_transform_batch(const trireme::Batch& batch) const;
  Dict inverse_transform_batch(const Dict& columns) const;

  // What fit() has found out, as the JSON has it; empty before.
  Dict stats() const;
  // JSON, with what fit() has found out: a part of the state of a checkpoint, or metadata of a trainer, which goes into
  // every checkpoint that is a folder. A function has no place in it.
  std::string serialize() const;
  static Preprocessor deserialize(std::string_view serialized);
  // preprocessor.json in a folder, as that of a checkpoint.
  void save(const std::string& folder) const;
  static Preprocessor load(const std::string& folder);

  const std::shared_ptr<api::preprocessing::Data>& data() const { return data_; }

 private:
  std::shared_ptr<api::preprocessing::Data> data_;  // shared by the copies of the handle
};

using Names = std::vector<std::string>;

// Where results go; in the place of the columns when not given.
struct OutputOptions {
  Names output_columns = {};
};

// Mean 0 and standard deviation 1. Null and NaN stay, as with all scalers; float32 stays float32.
class TRIREME_API StandardScaler : public Preprocessor {
 public:
  explicit StandardScaler(const Names& columns, const OutputOptions& options = {});
};

// The smallest value becomes 0 and the largest 1.
class TRIREME_API MinMaxScaler : public Preprocessor {
 public:
  explicit MinMaxScaler(const Names& columns, const OutputOptions& options = {});
};

// The value that is furthest from 0 becomes 1 or -1; 0 stays 0.
class TRIREME_API MaxAbsScaler : public Preprocessor {
 public:
  explicit MaxAbsScaler(const Names& columns, const OutputOptions& options = {});
};

struct RobustScalerOptions {
  std::pair<double, double> quantile_range = {0.25, 0.75};
  Names output_columns = {};
  // Values that are kept to find quantiles by. Below 131072 values they are exact in any case.
  std::int64_t quantile_precision = 800;
};

// The median becomes 0, the distance between two quantiles 1: outliers do not matter.
class TRIREME_API RobustScaler : public Preprocessor {
 public:
  explicit RobustScaler(const Names& columns, const RobustScalerOptions& options = {});
};

struct NormalizerOptions {
  std::string norm = "l2";  // or "l1", "max"
  Names output_columns = {};
};

// Rows of length 1: each value is divided by the norm of its row. A row of zeros stays.
class TRIREME_API Normalizer : public Preprocessor {
 public:
  explicit Normalizer(const Names& columns, const NormalizerOptions& options = {});
};

struct PowerTransformerOptions {
  std::string method = "yeo-johnson";  // or "box-cox", for positive values
  Names output_columns = {};
};

// Values nearer to a normal distribution.
class TRIREME_API PowerTransformer : public Preprocessor {
 public:
  PowerTransformer(const Names& columns, double power, const PowerTransformerOptions& options = {});
};

struct SimpleImputerOptions {
  std::string strategy = "mean";  // or "most_frequent", "constant"
  Value fill_value = {};          // of "constant"
  Names output_columns = {};
};

// Nulls and NaN become the mean of the column, its most frequent value, or a constant. With "mean" columns of integers
// become float64.
class TRIREME_API SimpleImputer : public Preprocessor {
 public:
  explicit SimpleImputer(const Names& columns, const SimpleImputerOptions& options = {});
};

struct OrdinalEncoderOptions {
  // Number what lists have in them; else each list is one category.
  bool encode_lists = true;
  Names output_columns = {};
};

// Each category becomes its number (int64), one that fit() has not seen null. 0 is the smallest.
class TRIREME_API OrdinalEncoder : public Preprocessor {
 public:
  explicit OrdinalEncoder(const Names& columns, const OrdinalEncoderOptions& options = {});
};

struct HotEncoderOptions {
  // By column, how many are told apart, the most frequent ones.
  std::map<std::string, std::int64_t> max_categories = {};
  Names output_columns = {};
};

// A vector (uint8) with 1 in the place of the category; all 0 for one that is not known.
class TRIREME_API OneHotEncoder : public Preprocessor {
 public:
  explicit OneHotEncoder(const Names& columns, const HotEncoderOptions& options = {});
};

// A vector (uint8) with 1 in the places of all the categories that a list has in it.
class TRIREME_API MultiHotEncoder : public Preprocessor {
 public:
  explicit MultiHotEncoder(const Names& columns, const HotEncoderOptions& options = {});
};

struct LabelEncoderOptions {
  std::optional<std::string> output_column = {};
};

// The labels of one column as numbers (int64); one that fit() has not seen becomes null.
class TRIREME_API LabelEncoder : public Preprocessor {
 public:
  explicit LabelEncoder(const std::string& label_column, const LabelEncoderOptions& options = {});
};

struct CategorizerOptions {
  // The categories of a column, where they need not be looked for.
  std::map<std::string, List> dtypes = {};
  Names output_columns = {};
};

// What fit() has not seen becomes null. (In Python also: columns of pandas categories.)
class TRIREME_API Categorizer : public Preprocessor {
 public:
  explicit Categorizer(const Names& columns, const CategorizerOptions& options = {});
};

struct ConcatenatorOptions {
  std::string output_column_name = "concat_out";
  // Of the vectors; when not given the smallest that holds all columns.
  std::optional<DType> dtype = {};
  // Ray's; a column that is not there is an error in any case.
  bool raise_if_missing = false;
  // Vectors and tensors among the columns are laid out side by side.
  bool flatten = false;
};

// Columns of numbers become one column of vectors, in the order given, and are dropped.
class TRIREME_API Concatenator : public Preprocessor {
 public:
  explicit Concatenator(const Names& columns, const ConcatenatorOptions& options = {});
};

// Called on several threads at once.
using TokenizationFunction = std::function<std::vector<std::string>(std::string_view text)>;

struct TokenizerOptions {
  TokenizationFunction tokenization_fn = {};  // split at each space when not given
  Names output_columns = {};
};

// Texts become lists of tokens.
class TRIREME_API Tokenizer : public Preprocessor {
 public:
  explicit Tokenizer(const Names& columns, const TokenizerOptions& options = {});
};

struct CountVectorizerOptions {
  TokenizationFunction tokenization_fn = {};
  std::optional<std::int64_t> max_features = {};  // only so many tokens, the most frequent ones
  Names output_columns = {};
};

// A vector (int64) with how often a text has each token, the most frequent token of the dataset first.
class TRIREME_API CountVectorizer : public Preprocessor {
 public:
  explicit CountVectorizer(const Names& columns, const CountVectorizerOptions& options = {});
};

// A vector (int64) of num_features counts: a token is counted in the place that its hash gives.
class TRIREME_API HashingVectorizer : public Preprocessor {
 public:
  HashingVectorizer(const Names& columns, std::int64_t num_features, const TokenizerOptions& options = {});
};

// Columns that count tokens, each named as its token, become one vector of num_features sums: a column is added in the
// place that the hash of its name gives. They are kept.
class TRIREME_API FeatureHasher : public Preprocessor {
 public:
  FeatureHasher(const Names& columns, std::int64_t num_features, const std::string& output_column);
};

struct DiscretizerOptions {
  bool right = true;                        // bins are (a, b], else [a, b)
  bool include_lowest = false;              // the first one has its lower edge too
  std::string duplicates = "raise";         // or "drop": edges that are there twice are taken once
  std::map<std::string, List> dtypes = {};  // by column, names of the bins
  Names output_columns = {};
};

// So many bins of equal width between the smallest and the largest value that fit() finds. A number becomes that of its
// bin (int64); one that is in none, null.
class TRIREME_API UniformKBinsDiscretizer : public Preprocessor {
 public:
  using Bins = std::variant<std::int64_t, std::map<std::string, std::int64_t>>;
  UniformKBinsDiscretizer(const Names& columns, const Bins& bins, const DiscretizerOptions& options = {});
};

// Bins with edges that are given: one list, or one for each column.
class TRIREME_API CustomKBinsDiscretizer : public Preprocessor {
 public:
  using Edges = std::vector<double>;
  using Bins = std::variant<Edges, std::map<std::string, Edges>>;
  CustomKBinsDiscretizer(const Names& columns, const Bins& bins, const DiscretizerOptions& options = {});
};

// A function of a batch: map_batches() as a part of a Chain. serialize() throws.
class TRIREME_API BatchMapper : public Preprocessor {
 public:
  explicit BatchMapper(std::function<Dict(const trireme::Batch&)> fn, const MapBatchesOptions& options = {});
};

// One after the other; each is fitted to what those before it make of the dataset.
class TRIREME_API Chain : public Preprocessor {
 public:
  explicit Chain(std::vector<Preprocessor> preprocessors);
  template <std::derived_from<Preprocessor>... Others>
  Chain(const Preprocessor& first, const Preprocessor& second, const Others&... others)
      : Chain(std::vector<Preprocessor>{first, second, others...}) {}
};

}  // namespace data::preprocessors
}  // namespace trireme
