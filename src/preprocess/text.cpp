#include <algorithm>
#include <numeric>

#include "data/value_arrays.h"
#include "preprocess/categories.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"
#include "preprocess/statistics.h"
#include "preprocess/tokens.h"

// Splits text into tokens, and counts tokens.

namespace trireme::preprocess {
namespace {

class Tokenizer final : public TextPreprocessor {
 public:
  using TextPreprocessor::TextPreprocessor;
  bool fittable() const override { return false; }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, text_column(table, index, true));
    std::vector<std::int64_t> offsets(1);
    std::vector<std::int32_t> starts(1);
    std::string texts;
    for (std::int64_t row = 0; row < found->rows(); ++row) {
      if (!null_at(*found->array, row)) {
        TRIREME_TRY(for_each_token(text_at(*found->schema, *found->array, row), [&](std::string_view token) {
          texts += token;
          starts.push_back(static_cast<std::int32_t>(texts.size()));
        }));
      }
      offsets.push_back(std::ssize(starts) - 1);
    }
    if (!std::in_range<std::int32_t>(texts.size()))
      return base::error("{}: more than 2 GiB of text in one batch", name());
    Column items{"item", data::make_schema("u", "item"), data::text_array(std::move(starts), {}, std::move(texts))};
    return from_lists(output(index), offsets, std::move(items), found);
  }
};

// A vector of int64 that counts tokens by index.
class Vectorizer : public TextPreprocessor {
 public:
  using TextPreprocessor::TextPreprocessor;

 protected:
  // The index of a token among `width`; -1 if it is not counted.
  template <typename Place>
  base::Result<Column> counted(const Table& table, std::size_t index, std::int64_t width, Place place) const {
    TRIREME_ASSIGN(const Column* found, token_column(table, index));
    TRIREME_ASSIGN(Tensor counts, zeros_of(DType::kI64, found->rows(), width), "{}", name());
    const auto values = counts.values<std::int64_t>();
    TRIREME_TRY(for_each_token(*found, [&](std::int64_t row, const Token& token) {
      const std::int64_t at = place(token);
      if (at >= 0) ++values[static_cast<std::size_t>(row * width + at)];
    }));
    return from_tensor(output(index), counts);
  }
};

// Tokens and their counts, in order of first appearance.
struct SeenTokens {
  Places places;
  std::vector<Value> tokens;
  std::vector<std::int64_t> counts;

  base::Result<void> add(const Token& token) {
    std::int64_t place = token.find_in(places);
    if (place < 0) {
      place = std::ssize(tokens);
      TRIREME_ASSIGN(auto value, token.value());
      places.add(value, place);
      tokens.push_back(std::move(value));
      counts.push_back(0);
    }
    ++counts[static_cast<std::size_t>(place)];
    return {};
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

class CountVectorizer final : public Vectorizer {
 public:
  CountVectorizer(InOut names, std::optional<std::int64_t> most) : Vectorizer(std::move(names)), most_(most) {}
  std::unique_ptr<Learner> learner() const override {
    std::vector<TokenCounter> counters;
    for (std::size_t i = 0; i < columns().size(); ++i) counters.emplace_back(*this, i);
    return std::make_unique<EachColumnLearner<TokenCounter, Value>>(
        std::move(counters), [this](const std::vector<Value>& counts) -> base::Result<Dict> {
          Dict stats;
          for (std::size_t i = 0; i < counts.size(); ++i) stats[stat_name("token_counts", column(i))] = counts[i];
          return stats;
        });
  }

 private:
  class TokenCounter {
   public:
    TokenCounter(const CountVectorizer& owner, std::size_t index) : owner_(&owner), index_(index) {}

    base::Result<void> add(const Table& table) {
      TRIREME_ASSIGN(const Column* found, owner_->token_column(table, index_));
      base::Result<void> added;
      TRIREME_TRY(owner_->for_each_token(*found, [&](std::int64_t, const Token& token) {
        if (auto done = seen_.add(token); !done) added = std::move(done);
      }));
      TRIREME_TRY(std::move(added), "{}: column '{}'", owner_->name(), owner_->column(index_));
      return {};
    }

    base::Result<Value> done() const {
      if (!seen_.tokens.empty()) return encoded_pairs(seen_.most_frequent(owner_->most_));
      return base::error("CountVectorizer: column '{}' has no tokens to learn from: there are no rows",
                         owner_->column(index_));
    }

   private:
    const CountVectorizer* owner_;
    std::size_t index_;
    SeenTokens seen_;
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
        if (!places_[i].add(pairs[place].first, static_cast<std::int64_t>(place)))
          return base::error("{}: {} appears twice", stat, python_text(pairs[place].first));
      }
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    return counted(table, index, widths_[index], [&](const Token& token) { return token.find_in(places_[index]); });
  }

  std::optional<std::int64_t> most_;
  std::vector<Places> places_;  // by column
  std::vector<std::int64_t> widths_;
};

class HashingVectorizer final : public Vectorizer {
 public:
  HashingVectorizer(InOut names, std::int64_t features) : Vectorizer(std::move(names)), features_(features) {}
  bool fittable() const override { return false; }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    Places known;  // a token is hashed once per batch
    return counted(table, index, features_, [&](const Token& token) {
      if (const std::int64_t before = token.find_in(known); before >= 0) return before;
      const std::string text = token.text();
      const std::int64_t place = hashed(text, features_);
      token.add_to(known, place);
      return place;
    });
  }

  std::int64_t features_;
};

}  // namespace

Made make_tokenizer(Arguments& given) { return of_columns<Tokenizer>(given); }

Made make_count_vectorizer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  std::optional<std::int64_t> most;
  if (!given.get("max_features").is_null()) {
    TRIREME_ASSIGN(most, given.whole("max_features"));
    if (*most < 1) return base::error("max_features={}: expected at least 1", *most);
  }
  return make_impl<CountVectorizer>(std::move(names), most);
}

Made make_hashing_vectorizer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(const auto features, checked_features(given));
  return make_impl<HashingVectorizer>(std::move(names), features);
}

}  // namespace trireme::preprocess
