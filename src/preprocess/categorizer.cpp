#include "preprocess/categories.h"
#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"

namespace trireme::preprocess {
namespace {

// A dictionary of known categories. Batches of C++ datasets have its values instead of its indices.
class Categorizer final : public EachColumnPreprocessor {
 public:
  Categorizer(InOut names, ListsByColumn given) : EachColumnPreprocessor(std::move(names)), given_(std::move(given)) {}

  std::vector<std::string> learned() const override {
    std::vector<std::string> unknown;
    for (const auto& each : columns()) {
      if (!given_.contains(each)) unknown.push_back(each);
    }
    return unknown;
  }

  std::unique_ptr<Learner> learner() const override {
    return learn_counts(learned(), name(), {.skip_nulls = true}, [this](const auto& counted) -> base::Result<Dict> {
      Pairs stats;
      for (const auto& each : columns()) {
        if (const auto found = given_.find(each); found != given_.end())
          stats.emplace_back(each, encoded_list(found->second));
      }
      const auto unknown = learned();
      for (std::size_t i = 0; i < counted.size(); ++i)
        stats.emplace_back(unknown[i], encoded_list(numbered(counted[i])));
      return encoded_pairs(std::move(stats)).as_dict();
    });
  }

 private:
  base::Result<void> understand(const Dict& stats) override {
    TRIREME_ASSIGN(const auto pairs, decoded_pairs(stats));
    categories_.clear();
    for (const auto& each : columns()) {
      const Value* found = find_in(pairs, each);
      if (!found || !found->get_if<List>()) return base::error("no list of categories for '{}'", each);
      TRIREME_ASSIGN(const auto values, decoded(*found), "the categories of '{}'", each);
      TRIREME_ASSIGN(auto categories, Categories::of(values.as_list()), "'{}'", each);
      categories_.push_back(std::move(categories));
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
    TRIREME_ASSIGN(const auto codes, categories_[index].codes(*found, name()));
    // The type of the categories, if the column has none.
    OwnedSchema inferred;
    const bool nulls = found->format() == "n" && categories_[index].size() > 0;
    if (nulls) {
      TRIREME_ASSIGN(inferred, schema_for(categories_[index].values()), "{}", name());
    }
    TRIREME_ASSIGN(auto made,
                   from_codes(output(index), codes, nulls ? *inferred : *found->schema, categories_[index].values()),
                   "{}: column '{}' is {}", name(), column(index), found->type());
    return made;
  }

  ListsByColumn given_;
  std::vector<Categories> categories_;
};

}  // namespace

Made make_categorizer(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(auto dtypes, given.lists("dtypes", [](const Value& name) {
    return base::error("dtypes: {} has no categories: pass a list of them", python_text(name));
  }));
  return make_impl<Categorizer>(std::move(names), std::move(dtypes));
}

}  // namespace trireme::preprocess
