#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "preprocess/learner.h"
#include "preprocess/table.h"
#include "trireme/preprocessors.h"
#include "trireme/value.h"

namespace trireme::preprocess {

// One preprocessor: its arguments and statistics. Fitted once, then immutable; used by any
// thread.
class PreprocessorImpl {
 public:
  virtual ~PreprocessorImpl() = default;
  virtual std::unique_ptr<PreprocessorImpl> clone() const = 0;

  virtual std::string_view name() const = 0;
  // As in the JSON, without functions.
  virtual Dict arguments() const = 0;
  // The name of the argument that is a function, if one is set.
  virtual std::string_view function_argument() const { return ""; }
  virtual std::vector<std::string> inputs() const { return {}; }
  virtual std::vector<std::string> outputs() const { return {}; }

  virtual bool fittable() const { return true; }
  // The columns that a learner reads.
  virtual std::vector<std::string> learned() const { return inputs(); }
  // For fittable preprocessors.
  virtual std::unique_ptr<Learner> learner() const;
  // Checks the statistics from learn() or a file.
  base::Result<void> take(Dict stats);
  void forget() { stats_.reset(); }
  const std::optional<Dict>& stats() const { return stats_; }

  virtual base::Result<Changes> change(const Table& table) const = 0;
  virtual base::Result<Changes> change_back(const Table& table) const;
  // Changes the table; `back`: change_back().
  base::Result<void> apply(Table& table, bool back = false) const;

 protected:
  virtual base::Result<void> understand(const Dict& stats) = 0;

 private:
  std::optional<Dict> stats_;
};

using Made = base::Result<std::unique_ptr<PreprocessorImpl>>;
// By its Python name, with arguments as in the JSON.
Made make_preprocessor(const std::string& name, const Dict& arguments);
// {"preprocessor": name, "arguments": {...}, "fitted": null or {"stats_": {...}}}; not a chain.
Made read_preprocessor(const Dict& described);

Made make_standard_scaler(const Dict& arguments);
Made make_min_max_scaler(const Dict& arguments);
Made make_max_abs_scaler(const Dict& arguments);
Made make_robust_scaler(const Dict& arguments);
Made make_normalizer(const Dict& arguments);
Made make_power_transformer(const Dict& arguments);
Made make_simple_imputer(const Dict& arguments);
Made make_ordinal_encoder(const Dict& arguments);
Made make_one_hot_encoder(const Dict& arguments);
Made make_multi_hot_encoder(const Dict& arguments);
Made make_label_encoder(const Dict& arguments);
Made make_categorizer(const Dict& arguments);
Made make_concatenator(const Dict& arguments);
Made make_feature_hasher(const Dict& arguments);
Made make_uniform_discretizer(const Dict& arguments);
Made make_custom_discretizer(const Dict& arguments);

using data::preprocessors::TokenizationFunction;
Made make_tokenizer(const Dict& arguments, TokenizationFunction function);
Made make_count_vectorizer(const Dict& arguments, TokenizationFunction function);
Made make_hashing_vectorizer(const Dict& arguments, TokenizationFunction function);

// The implementation of the handle in preprocessors.h.
struct Data {
  std::shared_ptr<const PreprocessorImpl> impl;               // shared with the transformed datasets
  std::vector<data::preprocessors::Preprocessor> chain = {};  // or these, in order
};

}  // namespace trireme::preprocess
