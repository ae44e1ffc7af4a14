#include <algorithm>
#include <cmath>

#include "base/text.h"
#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"
#include "preprocess/statistics.h"

// Sorts numbers into bins.

namespace trireme::preprocess {
namespace {

using Edges = std::vector<double>;

struct BinOptions {
  Value bins;  // for all columns, or by column
  bool right = true;
  bool include_lowest = false;
  std::string duplicates;
  ListsByColumn dtypes;

  base::Result<const Value*> of(const std::string& column) const {
    if (!bins.get_if<Dict>()) return &bins;
    const Value* found = bins.as_dict().find(column);
    if (!found) return base::error("bins has no entry for '{}': pass one for each column", column);
    return found;
  }
};

// Replaces a number with the index of its bin, like pandas.cut(labels=False), or null if it is in no bin.
class Discretizer : public EachColumnPreprocessor {
 public:
  Discretizer(InOut names, BinOptions options)
      : EachColumnPreprocessor(std::move(names)), options_(std::move(options)) {}

 protected:
  const BinOptions& options() const { return options_; }
  void set_edges(std::vector<Edges> edges) { edges_ = std::move(edges); }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, numeric(table, column(index), name()));
    const Edges& edges = edges_[index];
    std::vector<std::int64_t> bins;
    bins.reserve(static_cast<std::size_t>(found->rows()));
    for (const double value : floats_of(*found)) bins.push_back(bin_of(value, edges));
    const auto names = options_.dtypes.find(column(index));
    if (names == options_.dtypes.end()) return from_numbers(output(index), std::move(bins));
    if (names->second.size() != edges.size() - 1) {
      return base::error("dtypes: {} for {} of column '{}'", base::count_of(std::ssize(names->second), "name"),
                         base::count_of(std::ssize(edges) - 1, "bin"), column(index));
    }
    TRIREME_ASSIGN(const auto type, schema_for(names->second), "dtypes");
    return from_codes(output(index), bins, *type, names->second);
  }

 private:
  std::int64_t bin_of(double value, const Edges& edges) const {
    if (std::isnan(value)) return -1;
    if (options_.include_lowest && value == edges.front()) return 0;
    const auto at = options_.right ? std::lower_bound(edges.begin(), edges.end(), value)
                                   : std::upper_bound(edges.begin(), edges.end(), value);
    return at == edges.end() ? -1 : at - edges.begin() - 1;
  }

  BinOptions options_;
  std::vector<Edges> edges_;  // by column
};

base::Result<Edges> edges_in(const Value& value) {
  const auto* list = value.get_if<List>();
  if (!list) return base::error("bins={}: expected a list of edges, or a dict of them by column", python_text(value));
  Edges edges;
  for (const auto& each : *list) {
    TRIREME_ASSIGN(const auto edge, decoded(each), "bins");
    if (!edge.is_number()) return base::error("bins={}: expected a list of edges", python_text(value));
    edges.push_back(edge.as_double());
  }
  return edges;
}

class CustomDiscretizer final : public Discretizer {
 public:
  using Discretizer::Discretizer;
  bool fittable() const override { return false; }

  base::Result<void> check() {
    std::vector<Edges> all;
    for (const auto& each : columns()) {
      TRIREME_ASSIGN(const Value* bins, options().of(each));
      TRIREME_ASSIGN(auto edges, edges_in(*bins));
      const bool rising =
          std::adjacent_find(edges.begin(), edges.end(), [](double a, double b) { return !(a <= b); }) == edges.end();
      if (edges.size() < 2 || !rising) {
        return base::error("bins={} for column '{}': expected at least two edges, in ascending order",
                           python_text(*bins), each);
      }
      const auto twice = std::unique(edges.begin(), edges.end());
      if (twice != edges.end() && options().duplicates == "raise")
        return base::error("bins={}: an edge appears twice; duplicates='drop' removes duplicates", python_text(*bins));
      edges.erase(twice, edges.end());
      all.push_back(std::move(edges));
    }
    set_edges(std::move(all));
    return {};
  }
};

class UniformDiscretizer final : public Discretizer {
 public:
  using Discretizer::Discretizer;

  base::Result<void> check() const {
    constexpr std::int64_t kMost = 1 << 28;
    for (const auto& each : columns()) {
      TRIREME_ASSIGN(const Value* bins, options().of(each));
      const auto* number = bins->get_if<std::int64_t>();
      if (!number || *number < 1 || *number > kMost) {
        return base::error("bins={}: expected a number of bins, or a dict of them by column",
                           python_text(options().bins));
      }
    }
    return {};
  }

  std::unique_ptr<Learner> learner() const override {
    return learn_moments(columns(), name(), [this](const auto& found) -> base::Result<Dict> {
      Pairs stats;
      for (std::size_t i = 0; i < found.size(); ++i) {
        TRIREME_ASSIGN(const Value* bins, options().of(column(i)));
        const auto edges = uniform(found[i].low, found[i].high, bins->as_int());
        stats.emplace_back(column(i), List(edges.begin(), edges.end()));
      }
      return encoded_pairs(std::move(stats)).as_dict();
    });
  }

 private:
  base::Result<void> understand(const Dict& stats) override {
    TRIREME_ASSIGN(const auto pairs, decoded_pairs(stats));
    std::vector<Edges> all;
    for (const auto& each : columns()) {
      const Value* found = find_in(pairs, each);
      if (!found) return base::error("no edges for '{}'", each);
      TRIREME_ASSIGN(auto edges, edges_in(*found));
      if (edges.size() < 2 || !std::is_sorted(edges.begin(), edges.end()))
        return base::error("the edges for '{}' are not in ascending order", each);
      all.push_back(std::move(edges));
    }
    set_edges(std::move(all));
    return {};
  }

  // Like pandas.cut: extended by a thousandth on the open side, so that the outermost value is included.
  Edges uniform(double low, double high, std::int64_t bins) const {
    const bool same = low == high;
    if (same) {
      const double wider = low != 0 ? 0.001 * std::abs(low) : 0.001;
      low -= wider;
      high += wider;
    }
    Edges edges;
    const double step = (high - low) / static_cast<double>(bins);
    for (std::int64_t i = 0; i <= bins; ++i) edges.push_back(i == bins ? high : low + static_cast<double>(i) * step);
    if (same) return edges;
    if (options().right) edges.front() -= (high - low) * 0.001;
    else edges.back() += (high - low) * 0.001;
    return edges;
  }
};

base::Result<BinOptions> options_in(Arguments& arguments) {
  BinOptions options;
  options.bins = arguments.get("bins");
  TRIREME_ASSIGN(options.right, arguments.flag("right", true));
  TRIREME_ASSIGN(options.include_lowest, arguments.flag("include_lowest", false));
  TRIREME_ASSIGN(options.duplicates, arguments.text("duplicates", "raise"));
  if (options.duplicates != "raise" && options.duplicates != "drop")
    return base::error("duplicates='{}': expected 'raise' or 'drop'", options.duplicates);
  TRIREME_ASSIGN(options.dtypes, arguments.lists("dtypes", [&](const Value&) {
    return base::error("dtypes = {}: expected lists of names by column", python_text(arguments.get("dtypes")));
  }));
  return options;
}

template <typename Bins>
Made discretizer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(auto options, options_in(given));
  auto made = std::make_unique<Bins>(std::move(names), std::move(options));
  TRIREME_TRY(made->check());
  return std::unique_ptr<PreprocessorImpl>(std::move(made));
}

}  // namespace

Made make_uniform_discretizer(Arguments& given) { return discretizer<UniformDiscretizer>(given); }
Made make_custom_discretizer(Arguments& given) { return discretizer<CustomDiscretizer>(given); }

}  // namespace trireme::preprocess
