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

// Preprocessors learn statistics of a dataset (means, categories, words) in fit() and apply them in transform(). Their
// JSON can be exchanged with Python's trireme.data.preprocessors.
//
//   using namespace trireme::data::preprocessors;
//   Chain prepare(SimpleImputer({"age"}), StandardScaler({"age"}), OrdinalEncoder({"town"}));
//   auto people = prepare.fit_transform(rows);
//   prepare.save(folder);  // of a checkpoint
//
// Invalid arguments and columns of the wrong type throw ValueError.

namespace trireme {

namespace preprocess {
struct Data;
}  // namespace preprocess

namespace data::preprocessors {

enum class FitStatus { kNotFittable, kNotFitted, kPartiallyFitted, kFitted };

// Thrown by transform() before fit().
class TRIREME_API PreprocessorNotFittedException : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

// Base class of the preprocessors below. A handle: copies share the statistics.
class TRIREME_API Preprocessor {
 public:
  explicit Preprocessor(std::shared_ptr<preprocess::Data> data) : data_(std::move(data)) {}

  // For example "StandardScaler".
  std::string name() const;
  // For example "StandardScaler(columns=['age'], output_columns=['age'])".
  std::string describe() const;
  std::vector<std::string> get_input_columns() const;
  std::vector<std::string> get_output_columns() const;

  FitStatus fit_status() const;
  // Reads the input columns once and replaces earlier statistics. Returns itself.
  Preprocessor fit(const Dataset& dataset);
  // A dataset whose batches are transformed while they are read.
  Dataset transform(const Dataset& dataset) const;
  Dataset fit_transform(const Dataset& dataset) { return fit(dataset).transform(dataset); }
  // Columns are tensors of shape [rows, ...], or lists if they have nulls or are not numeric.
  Dict transform_batch(const trireme::Batch& batch) const;
  Dict transform_batch(const Dict& columns) const;
  // LabelEncoder only: restores the labels in label_column from the numbers in output_column.
  Dataset inverse_transform(const Dataset& dataset) const;
  Dict inverse_transform_batch(const trireme::Batch& batch) const;
  Dict inverse_transform_batch(const Dict& columns) const;

  // The statistics that fit() learned, as in the JSON; empty before fit().
  Dict stats() const;
  // JSON with the statistics. Store it in the state of a checkpoint, or in the metadata of a trainer, which is written
  // to every checkpoint folder. Preprocessors with a function cannot be serialized.
  std::string serialize() const;
  static Preprocessor deserialize(std::string_view serialized);
  // preprocessor.json in a folder, for example a checkpoint's.
  void save(const std::string& folder) const;
  static Preprocessor load(const std::string& folder);

  const std::shared_ptr<preprocess::Data>& data() const { return data_; }

 private:
  std::shared_ptr<preprocess::Data> data_;  // shared by the copies of the handle
};

using Names = std::vector<std::string>;

// The columns for the results. Default: the input columns are replaced.
struct OutputOptions {
  Names output_columns = {};
};

// Scales to mean 0 and standard deviation 1. Like all scalers it keeps null and NaN, and float32 stays float32.
class TRIREME_API StandardScaler : public Preprocessor {
 public:
  explicit StandardScaler(const Names& columns, const OutputOptions& options = {});
};

// Scales the smallest value to 0 and the largest to 1.
class TRIREME_API MinMaxScaler : public Preprocessor {
 public:
  explicit MinMaxScaler(const Names& columns, const OutputOptions& options = {});
};

// Divides by the largest absolute value: the result is between -1 and 1, and 0 stays 0.
class TRIREME_API MaxAbsScaler : public Preprocessor {
 public:
  explicit MaxAbsScaler(const Names& columns, const OutputOptions& options = {});
};

struct RobustScalerOptions {
  std::pair<double, double> quantile_range = {0.25, 0.75};
  Names output_columns = {};
  // Number of values kept to estimate quantiles. Below 131072 values the quantiles are always exact.
  std::int64_t quantile_precision = 800;
};

// Scales the median to 0 and the distance between two quantiles to 1, so outliers do not matter.
class TRIREME_API RobustScaler : public Preprocessor {
 public:
  explicit RobustScaler(const Names& columns, const RobustScalerOptions& options = {});
};

struct NormalizerOptions {
  std::string norm = "l2";  // or "l1", "max"
  Names output_columns = {};
};

// Scales rows to length 1: each value is divided by the norm of its row. Rows of zeros stay unchanged.
class TRIREME_API Normalizer : public Preprocessor {
 public:
  explicit Normalizer(const Names& columns, const NormalizerOptions& options = {});
};

struct PowerTransformerOptions {
  std::string method = "yeo-johnson";  // or "box-cox", for positive values
  Names output_columns = {};
};

// Makes values more normally distributed.
class TRIREME_API PowerTransformer : public Preprocessor {
 public:
  PowerTransformer(const Names& columns, double power, const PowerTransformerOptions& options = {});
};

struct SimpleImputerOptions {
  std::string strategy = "mean";  // or "most_frequent", "constant"
  Value fill_value = {};          // for "constant"
  Names output_columns = {};
};

// Replaces null and NaN with the mean of the column, its most frequent value, or a constant. With "mean", integer
// columns become float64.
class TRIREME_API SimpleImputer : public Preprocessor {
 public:
  explicit SimpleImputer(const Names& columns, const SimpleImputerOptions& options = {});
};

struct OrdinalEncoderOptions {
  // Encode the elements of lists; if false, each list is one category.
  bool encode_lists = true;
  Names output_columns = {};
};

// Replaces each category with its number (int64) in sorted order, from 0. Unknown categories become null.
class TRIREME_API OrdinalEncoder : public Preprocessor {
 public:
  explicit OrdinalEncoder(const Names& columns, const OrdinalEncoderOptions& options = {});
};

struct HotEncoderOptions {
  // Maximum number of categories by column; the most frequent ones are kept.
  std::map<std::string, std::int64_t> max_categories = {};
  Names output_columns = {};
};

// A vector (uint8) with 1 at the index of the category; all 0 for unknown categories.
class TRIREME_API OneHotEncoder : public Preprocessor {
 public:
  explicit OneHotEncoder(const Names& columns, const HotEncoderOptions& options = {});
};

// A vector (uint8) with 1 at the indices of all categories in a list.
class TRIREME_API MultiHotEncoder : public Preprocessor {
 public:
  explicit MultiHotEncoder(const Names& columns, const HotEncoderOptions& options = {});
};

struct LabelEncoderOptions {
  std::optional<std::string> output_column = {};
};

// Replaces the labels of one column with numbers (int64). Unknown labels become null.
class TRIREME_API LabelEncoder : public Preprocessor {
 public:
  explicit LabelEncoder(const std::string& label_column, const LabelEncoderOptions& options = {});
};

struct CategorizerOptions {
  // The categories of a column, if they are known; fit() finds the others.
  std::map<std::string, List> dtypes = {};
  Names output_columns = {};
};

// Replaces values that fit() has not seen with null. (In Python the columns are categorical, too.)
class TRIREME_API Categorizer : public Preprocessor {
 public:
  explicit Categorizer(const Names& columns, const CategorizerOptions& options = {});
};

struct ConcatenatorOptions {
  std::string output_column_name = "concat_out";
  // Type of the vectors. Default: the smallest type that holds all columns.
  std::optional<DType> dtype = {};
  // For compatibility with Ray; a missing column is always an error.
  bool raise_if_missing = false;
  // Concatenate vectors and tensors among the columns, too.
  bool flatten = false;
};

// Combines columns of numbers into one column of vectors, in the given order, and drops them.
class TRIREME_API Concatenator : public Preprocessor {
 public:
  explicit Concatenator(const Names& columns, const ConcatenatorOptions& options = {});
};

// Called concurrently on several threads.
using TokenizationFunction = std::function<std::vector<std::string>(std::string_view text)>;

struct TokenizerOptions {
  TokenizationFunction tokenization_fn = {};  // default: split at each space
  Names output_columns = {};
};

// Splits texts into lists of tokens.
class TRIREME_API Tokenizer : public Preprocessor {
 public:
  explicit Tokenizer(const Names& columns, const TokenizerOptions& options = {});
};

struct CountVectorizerOptions {
  TokenizationFunction tokenization_fn = {};
  std::optional<std::int64_t> max_features = {};  // keep only the N most frequent tokens
  Names output_columns = {};
};

// A vector (int64) with the count of each token in a text, the most frequent token of the dataset first.
class TRIREME_API CountVectorizer : public Preprocessor {
 public:
  explicit CountVectorizer(const Names& columns, const CountVectorizerOptions& options = {});
};

// A vector (int64) of num_features counts: the hash of a token selects the element that counts it.
class TRIREME_API HashingVectorizer : public Preprocessor {
 public:
  HashingVectorizer(const Names& columns, std::int64_t num_features, const TokenizerOptions& options = {});
};

// Combines columns of token counts, each named after its token, into one vector of num_features sums: the hash of a
// column's name selects the element that it is added to. The columns are kept.
class TRIREME_API FeatureHasher : public Preprocessor {
 public:
  FeatureHasher(const Names& columns, std::int64_t num_features, const std::string& output_column);
};

struct DiscretizerOptions {
  bool right = true;                        // bins are (a, b], else [a, b)
  bool include_lowest = false;              // the first bin includes its lower edge
  std::string duplicates = "raise";         // or "drop": remove duplicate edges
  std::map<std::string, List> dtypes = {};  // names of the bins by column
  Names output_columns = {};
};

// Bins of equal width between the smallest and the largest value that fit() finds; `bins` is their number. Replaces a
// number with the index of its bin (int64), or null if it is in no bin.
class TRIREME_API UniformKBinsDiscretizer : public Preprocessor {
 public:
  using Bins = std::variant<std::int64_t, std::map<std::string, std::int64_t>>;
  UniformKBinsDiscretizer(const Names& columns, const Bins& bins, const DiscretizerOptions& options = {});
};

// Bins with the given edges: one list, or one for each column.
class TRIREME_API CustomKBinsDiscretizer : public Preprocessor {
 public:
  using Edges = std::vector<double>;
  using Bins = std::variant<Edges, std::map<std::string, Edges>>;
  CustomKBinsDiscretizer(const Names& columns, const Bins& bins, const DiscretizerOptions& options = {});
};

// Calls a function on batches: map_batches() as a part of a Chain. serialize() throws.
class TRIREME_API BatchMapper : public Preprocessor {
 public:
  explicit BatchMapper(std::function<Dict(const trireme::Batch&)> fn, const MapBatchesOptions& options = {});
};

// Applies preprocessors in order. Each is fitted to the output of the previous ones.
class TRIREME_API Chain : public Preprocessor {
 public:
  explicit Chain(std::vector<Preprocessor> preprocessors);
  template <std::derived_from<Preprocessor>... Others>
  Chain(const Preprocessor& first, const Preprocessor& second, const Others&... others)
      : Chain(std::vector<Preprocessor>{first, second, others...}) {}
};

}  // namespace data::preprocessors
}  // namespace trireme
