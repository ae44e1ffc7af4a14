#include <algorithm>
#include <numeric>

#include "api/preprocessors/categories.h"
#include "api/preprocessors/columns.h"
#include "api/preprocessors/state_json.h"
#include "api/preprocessors/statistics.h"
#include "api/preprocessors/tokens.h"

// Splits text into tokens, and counts tokens.

namespace trireme::api::preprocessing {
namespace {

class Tokenizer final : public TextKind {
 public:
  using TextKind::TextKind;
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<Tokenizer>(*this); }
  std::string_view name() const override { return "Tokenizer"; }
  bool fittable() const override { return false; }
  Dict arguments() const override {
    return {{"columns", column_list()}, {"tokenization_fn", nullptr}, {"output_columns", output_list()}};
  }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, text_column(table, index, true));
    std::vector<Value> lists(static_cast<std::size_t>(found->rows()));
    std::vector<const Value*> values(lists.size());
    for (std::int64_t row = 0; row < found->rows(); ++row) {
      if (null_at(*found->array, row)) continue;
      TRIREME_ASSIGN(auto split, tokens(text_at(*found->schema, *found->array, row)));
      auto& list = lists[static_cast<std::size_t>(row)];
      list = List(std::make_move_iterator(split.begin()), std::make_move_iterator(split.end()));
      values[static_cast<std::size_t>(row)] = &list;
    }
    TRIREME_ASSIGN(const auto type, schema_for(List{""}));
    return from_values(output(index), *type, values);
  }
};

// A vector of int64 that counts tokens by index.
class Vectorizer : public TextKind {
 public:
  using TextKind::TextKind;

 protected:
  template <typename Place>
  base::Result<Column> counted(const Table& table, std::size_t index, std::int64_t width, Place place) const {
    TRIREME_ASSIGN(const Column* found, text_column(table, index, false));
    TRIREME_ASSIGN(Tensor counts, zeros_of(DType::kI64, found->rows(), width), "{}", name());
    const auto values = counts.values<std::int64_t>();
    for (std::int64_t row = 0; row < found->rows(); ++row) {
      TRIREME_ASSIGN(const auto split, tokens(text_at(*found->schema, *found->array, row)));
      for (const auto& token : split) {
        const std::int64_t at = place(token);
        if (at >= 0) ++values[static_cast<std::size_t>(row * width + at)];
      }
    }
    return from_tensor(output(index), std::move(counts));
  }
};

class CountVectorizer final : public Vectorizer {
 public:
  CountVectorizer(InOut names, TokenizationFunction function, std::optional<std::int64_t> most)
      : Vectorizer(std::move(names), std::move(function)), most_(most) {}
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<CountVectorizer>(*this); }
  std::string_view name() const override { return "CountVectorizer"; }
  Dict arguments() const override {
    return {{"columns", column_list()},
            {"tokenization_fn", nullptr},
            {"max_features", most_ ? Value(*most_) : Value()},
            {"output_columns", output_list()}};
  }

  base::Result<Dict> learn(const Dataset& dataset) const override {
    std::vector<Seen> seen(columns().size());
    TRIREME_TRY(for_each_table(dataset, columns(), name(), [&](const Table& table) -> base::Result<void> {
      for (std::size_t i = 0; i < columns().size(); ++i) {
        TRIREME_ASSIGN(const Column* found, text_column(table, i, false));
        for (std::int64_t row = 0; row < found->rows(); ++row) {
          TRIREME_ASSIGN(const auto split, tokens(text_at(*found->schema, *found->array, row)));
          for (const auto& token : split) seen[i].add(token);
        }
      }
      return {};
    }));
    Dict stats;
    for (std::size_t i = 0; i < columns().size(); ++i) {
      if (seen[i].tokens.empty()) {
        return base::error("CountVectorizer: column '{}' has no tokens to learn from: there are no rows", column(i));
      }
      stats[stat_name("token_counts", column(i))] = encoded_pairs(seen[i].most_frequent(most_));
    }
    return stats;
  }

 private:
  struct Seen {
    Places places;
    std::vector<std::string> tokens;  // in order of first appearance
    std::vector<std::int64_t> counts;

    void add(const std::string& token) {
      if (places.add(token, static_cast<std::int64_t>(tokens.size()))) {
        tokens.push_back(token);
        counts.push_back(0);
      }
      ++counts[static_cast<std::size_t>(places.find(token))];
    }

    Pairs most_frequent(std::optional<std::int64_t> most) const {
      std::vector<std::size_t> order(tokens.size());
      std::iota(order.begin(), order.end(), std::size_t{0});
      std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) { return counts[a] > counts[b]; });
      if (most) order.resize(std::min(order.size(), static_cast<std::size_t>(*most)));
      Pairs pairs;
      for (const std::size_t i : order) pairs.emplace_back(tokens[i], counts[i]);
      return pairs;
    }
  };

  base::Result<void> understand(const Dict& stats) override {
    places_.assign(columns().size(), {});
    widths_.clear();
    for (std::size_t i = 0; i < columns().size(); ++i) {
      const auto stat = stat_name("token_counts", column(i));
      TRIREME_ASSIGN(const Value* counts, value_in(stats, stat));
      TRIREME_ASSIGN(const auto pairs, decoded_pairs(*counts), "{}", stat);
      widths_.push_back(static_cast<std::int64_t>(pairs.size()));
      for (std::size_t place = 0; place < pairs.size(); ++place) {
        const auto* token = pairs[place].first.get_if<std::string>();
        if (!token || !places_[i].add(*token, static_cast<std::int64_t>(place)))
          return base::error("{}: {} is not a token, or appears twice", stat, shown(pairs[place].first));
      }
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    return counted(table, index, widths_[index], [&](const std::string& token) { return places_[index].find(token); });
  }

  std::optional<std::int64_t> most_;
  std::vector<Places> places_;  // by column
  std::vector<std::int64_t> widths_;
};

class HashingVectorizer final : public Vectorizer {
 public:
  HashingVectorizer(InOut names, TokenizationFunction function, std::int64_t features)
      : Vectorizer(std::move(names), std::move(function)), features_(features) {}
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<HashingVectorizer>(*this); }
  std::string_view name() const override { return "HashingVectorizer"; }
  bool fittable() const override { return false; }
  Dict arguments() const override {
    return {{"columns", column_list()},
            {"num_features", features_},
            {"tokenization_fn", nullptr},
            {"output_columns", output_list()}};
  }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    // A token is hashed once per batch.
    std::unordered_map<std::string, std::int64_t> known;
    return counted(table, index, features_, [&](const std::string& token) {
      const auto [place, added] = known.try_emplace(token, 0);
      if (added) place->second = hashed(token, features_);
      return place->second;
    });
  }

  std::int64_t features_;
};

base::Result<void> expect_no_function(const Arguments& arguments) {
  if (arguments.get("tokenization_fn").is_null()) return {};
  return base::error("tokenization_fn = {}: a function cannot be read from JSON",
                     shown(arguments.get("tokenization_fn")));
}

}  // namespace

Made make_tokenizer(const Dict& given, TokenizationFunction function) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "tokenization_fn", "output_columns"}));
  TRIREME_TRY(expect_no_function(arguments));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  return std::unique_ptr<PreprocessorImpl>(std::make_unique<Tokenizer>(std::move(names), std::move(function)));
}

Made make_count_vectorizer(const Dict& given, TokenizationFunction function) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "tokenization_fn", "max_features", "output_columns"}));
  TRIREME_TRY(expect_no_function(arguments));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  std::optional<std::int64_t> most;
  if (!arguments.get("max_features").is_null()) {
    TRIREME_ASSIGN(most, arguments.whole("max_features"));
    if (*most < 1) return base::error("max_features = {}: expected at least 1", *most);
  }
  return std::unique_ptr<PreprocessorImpl>(
      std::make_unique<CountVectorizer>(std::move(names), std::move(function), most));
}

Made make_hashing_vectorizer(const Dict& given, TokenizationFunction function) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "num_features", "tokenization_fn", "output_columns"}));
  TRIREME_TRY(expect_no_function(arguments));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  TRIREME_ASSIGN(const auto features, checked_features(arguments));
  return std::unique_ptr<PreprocessorImpl>(
      std::make_unique<HashingVectorizer>(std::move(names), std::move(function), features));
}

}  // namespace trireme::api::preprocessing
