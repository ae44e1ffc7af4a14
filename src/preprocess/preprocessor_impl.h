#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "preprocess/arguments.h"
#include "preprocess/learner.h"
#include "preprocess/table.h"
#include "trireme/preprocessors.h"
#include "trireme/value.h"

namespace trireme::preprocess {

using data::preprocessors::TokenizationFunction;

// What a preprocessor was made from.
struct Origin {
  std::string_view name;  // Python's; a constant
  Dict arguments = {};    // as in the JSON, with defaults
  // The argument that is a function, if one is set.
  std::string_view function_argument = {};
  TokenizationFunction tokenization_fn = {};
};

// One preprocessor: its arguments and statistics. Fitted once, then immutable; used by any
// thread.
class PreprocessorImpl {
 public:
  virtual ~PreprocessorImpl() = default;

  const Origin& origin() const { return origin_; }
  void set_origin(Origin origin) { origin_ = std::move(origin); }
  std::string_view name() const { return origin_.name; }
  // The same without statistics. For fittable preprocessors.
  std::unique_ptr<PreprocessorImpl> unfitted() const;

  virtual std::vector<std::string> inputs() const { return {}; }
  virtual std::vector<std::string> outputs() const { return {}; }

  virtual bool fittable() const { return true; }
  // The columns that a learner reads.
  virtual std::vector<std::string> learned() const { return inputs(); }
  // For fittable preprocessors.
  virtual std::unique_ptr<Learner> learner() const;
  // Checks the statistics from learn() or a file.
  base::Result<void> take(Dict stats);
  const std::optional<Dict>& stats() const { return stats_; }

  virtual base::Result<Changes> change(const Table& table) const = 0;
  virtual base::Result<Changes> change_back(const Table& table) const;
  // Changes the table; `back`: change_back().
  base::Result<void> apply(Table& table, bool back = false) const;

 protected:
  virtual base::Result<void> understand(const Dict&) { return {}; }

 private:
  Origin origin_;
  std::optional<Dict> stats_;
};

using Made = base::Result<std::unique_ptr<PreprocessorImpl>>;
// By its Python name, with arguments as in the JSON.
Made make_preprocessor(std::string_view name, const Dict& arguments, TokenizationFunction function = {});
// {"preprocessor": name, "arguments": {...}, "fitted": null or {"stats_": {...}}}; not a chain.
Made read_preprocessor(const Dict& described);

Made make_standard_scaler(Arguments& given);
Made make_min_max_scaler(Arguments& given);
Made make_max_abs_scaler(Arguments& given);
Made make_robust_scaler(Arguments& given);
Made make_normalizer(Arguments& given);
Made make_power_transformer(Arguments& given);
Made make_simple_imputer(Arguments& given);
Made make_ordinal_encoder(Arguments& given);
Made make_one_hot_encoder(Arguments& given);
Made make_multi_hot_encoder(Arguments& given);
Made make_label_encoder(Arguments& given);
Made make_categorizer(Arguments& given);
Made make_concatenator(Arguments& given);
Made make_feature_hasher(Arguments& given);
Made make_uniform_discretizer(Arguments& given);
Made make_custom_discretizer(Arguments& given);
Made make_tokenizer(Arguments& given);
Made make_count_vectorizer(Arguments& given);
Made make_hashing_vectorizer(Arguments& given);

template <typename T, typename... Parts>
Made make_impl(Parts&&... parts) {
  return std::unique_ptr<PreprocessorImpl>(std::make_unique<T>(std::forward<Parts>(parts)...));
}

// The implementation of the handle in preprocessors.h.
struct Data {
  std::shared_ptr<const PreprocessorImpl> impl;               // shared with the transformed datasets
  std::vector<data::preprocessors::Preprocessor> chain = {};  // or these, in order
};

}  // namespace trireme::preprocess
