#include <map>

#include "api/preprocessors/categories.h"
#include "api/preprocessors/columns.h"
#include "api/preprocessors/columns_kind.h"
#include "api/preprocessors/state_json.h"

namespace trireme::api::preprocessing {
namespace {

using Given = std::map<std::string, List, std::less<>>;

List encoded_list(const std::vector<Value>& values) {
  List list;
  for (const auto& each : values) list.push_back(encoded(each));
  return list;
}

// Restricts a column to known categories. Batches have the values of dictionaries instead of their indices, so nothing
// else is visible.
class Categorizer final : public EachColumnKind {
 public:
  Categorizer(InOut names, Given given) : EachColumnKind(std::move(names)), given_(std::move(given)) {}
  std::unique_ptr<PreprocessorImpl> clone() const override { return std::make_unique<Categorizer>(*this); }
  std::string_view name() const override { return "Categorizer"; }

  Dict arguments() const override {
    Pairs dtypes;
    for (const auto& [column, values] : given_) dtypes.emplace_back(column, encoded_list(values));
    return {
        {"columns", column_list()}, {"dtypes", encoded_pairs(std::move(dtypes))}, {"output_columns", output_list()}};
  }

  base::Result<Dict> learn(const Dataset& dataset) const override {
    Pairs stats;
    std::vector<std::string> unknown;
    for (const auto& each : columns()) {
      const auto found = given_.find(each);
      if (found == given_.end()) unknown.push_back(each);
      else stats.emplace_back(each, encoded_list(found->second));
    }
    if (!unknown.empty()) {
      TRIREME_ASSIGN(const auto counted, value_counts(dataset, unknown, name(), {.skip_nulls = true}));
      for (std::size_t i = 0; i < counted.size(); ++i)
        stats.emplace_back(unknown[i], encoded_list(numbered(counted[i])));
    }
    return encoded_pairs(std::move(stats)).as_dict();
  }

 private:
  base::Result<void> understand(const Dict& stats) override {
    TRIREME_ASSIGN(const auto pairs, decoded_pairs(stats));
    categories_.clear();
    for (const auto& each : columns()) {
      const auto found =
          std::find_if(pairs.begin(), pairs.end(), [&](auto& pair) { return pair.first == Value(each); });
      if (found == pairs.end() || !found->second.get_if<List>())
        return base::error("no list of categories for '{}'", each);
      TRIREME_ASSIGN(const auto values, decoded(found->second), "the categories of '{}'", each);
      TRIREME_ASSIGN(auto categories, Categories::of(values.as_list()), "'{}'", each);
      categories_.push_back(std::move(categories));
    }
    return {};
  }

  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, table.find(column(index), name()));
    TRIREME_ASSIGN(const auto codes, categories_[index].codes(*found, name()));
    std::vector<const Value*> values;
    for (const auto code : codes)
      values.push_back(code < 0 ? nullptr : &categories_[index].values()[static_cast<std::size_t>(code)]);
    TRIREME_ASSIGN(auto made, from_values(output(index), *found->schema, values), "{}: column '{}' is {}", name(),
                   column(index), found->type());
    return made;
  }

  Given given_;
  std::vector<Categories> categories_;
};

}  // namespace

Made make_categorizer(const Dict& given) {
  const Arguments arguments(given);
  TRIREME_TRY(arguments.expect({"columns", "dtypes", "output_columns"}));
  TRIREME_ASSIGN(auto names, InOut::of(arguments));
  Given dtypes;
  if (!arguments.get("dtypes").is_null()) {
    TRIREME_ASSIGN(const auto pairs, decoded_pairs(arguments.get("dtypes")), "dtypes");
    for (const auto& [name, values] : pairs) {
      if (!name.get_if<std::string>() || !values.get_if<List>())
        return base::error("dtypes: {} has no categories: pass a list of them", shown(name));
      TRIREME_ASSIGN(const auto list, decoded(values), "dtypes");
      dtypes[name.as_string()] = list.as_list();
    }
  }
  return std::unique_ptr<PreprocessorImpl>(std::make_unique<Categorizer>(std::move(names), std::move(dtypes)));
}

}  // namespace trireme::api::preprocessing
