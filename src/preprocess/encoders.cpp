#include <map>

#include "preprocess/categories.h"
#include "preprocess/column_preprocessor.h"
#include "preprocess/columns.h"
#include "preprocess/state_json.h"

// Categories as numbers, in sorted order: 0 is the smallest.

namespace trireme::preprocess {
namespace {

using Most = std::map<std::string, std::int64_t, std::less<>>;

// stats["unique_values(column)"] has the number of each category.
class Encoder : public EachColumnPreprocessor {
 public:
  using EachColumnPreprocessor::EachColumnPreprocessor;

 protected:
  std::unique_ptr<Learner> learn(bool inside_lists, const Most& most = {}) const {
    return learn_counts(
        columns(), name(), {.inside_lists = inside_lists}, [this, most](const auto& counted) -> base::Result<Dict> {
          Dict stats;
          for (std::size_t i = 0; i < counted.size(); ++i) {
            const auto limit = most.find(column(i));
            const auto values = numbered(counted[i], limit == most.end() ? std::nullopt : std::optional(limit->second));
            TRIREME_ASSIGN(const auto categories, Categories::of(values));
            stats[stat_name("unique_values", column(i))] = categories.numbers();
          }
          return stats;
        });
  }

  base::Result<void> understand(const Dict& stats) override {
    categories_.clear();
    for (const auto& each : columns()) {
      const auto stat = stat_name("unique_values", each);
      TRIREME_ASSIGN(const Value* numbers, value_in(stats, stat));
      TRIREME_ASSIGN(auto categories, Categories::of_numbers(*numbers), "{}", stat);
      categories_.push_back(std::move(categories));
    }
    return {};
  }

  const Categories& categories(std::size_t index) const { return categories_[index]; }

 private:
  std::vector<Categories> categories_;
};

class OrdinalEncoder final : public Encoder {
 public:
  OrdinalEncoder(InOut names, bool encode_lists) : Encoder(std::move(names)), encode_lists_(encode_lists) {}
  std::unique_ptr<Learner> learner() const override { return learn(encode_lists_); }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, without_nulls(table, column(index), name()));
    if (encode_lists_ && is_list(found->format())) return inside_lists(*found, index);
    TRIREME_ASSIGN(auto codes, categories(index).codes(*found, name()));
    return from_numbers(output(index), std::move(codes));
  }

  base::Result<Column> inside_lists(const Column& lists, std::size_t index) const {
    TRIREME_TRY(categories(index).expect_fit(*lists.schema->children[0], lists, name()));
    std::vector<std::int64_t> offsets(1);
    std::vector<std::int64_t> codes;
    for (std::int64_t row = 0; row < lists.rows(); ++row) {
      const Inside inside = list_at(*lists.schema, *lists.array, row);
      for (std::int64_t i = 0; i < inside.count; ++i) codes.push_back(categories(index).code(inside, i));
      offsets.push_back(static_cast<std::int64_t>(codes.size()));
    }
    return from_lists(output(index), offsets, from_numbers("item", std::move(codes)));
  }

  bool encode_lists_;
};

class HotEncoder : public Encoder {
 public:
  HotEncoder(InOut names, Most most) : Encoder(std::move(names)), most_(std::move(most)) {}

 protected:
  const Most& most() const { return most_; }

  Tensor zeros(std::int64_t rows, std::size_t index) const {
    return Tensor(DType::kU8, {rows, static_cast<std::int64_t>(categories(index).size())});
  }

 private:
  Most most_;
};

class OneHotEncoder final : public HotEncoder {
 public:
  using HotEncoder::HotEncoder;
  std::unique_ptr<Learner> learner() const override { return learn(false, most()); }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, without_nulls(table, column(index), name()));
    TRIREME_ASSIGN(const auto codes, categories(index).codes(*found, name()));
    const Tensor hot = zeros(found->rows(), index);
    const auto values = hot.values<std::uint8_t>();
    for (std::size_t row = 0; row < codes.size(); ++row) {
      if (codes[row] >= 0) values[row * categories(index).size() + static_cast<std::size_t>(codes[row])] = 1;
    }
    return from_tensor(output(index), hot);
  }
};

class MultiHotEncoder final : public HotEncoder {
 public:
  using HotEncoder::HotEncoder;
  std::unique_ptr<Learner> learner() const override { return learn(true, most()); }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, without_nulls(table, column(index), name()));
    const bool lists = is_list(found->format());
    const ArrowSchema& type = lists ? *found->schema->children[0] : *found->schema;
    TRIREME_TRY(categories(index).expect_fit(type, *found, name()));
    const Tensor hot = zeros(found->rows(), index);
    const auto values = hot.values<std::uint8_t>();
    for (std::int64_t row = 0; row < found->rows(); ++row) {
      const Inside inside =
          lists ? list_at(*found->schema, *found->array, row) : Inside{&*found->schema, &*found->array, row, 1};
      for (std::int64_t i = 0; i < inside.count; ++i) {
        const std::int64_t code = categories(index).code(inside, i);
        if (code >= 0)
          values[static_cast<std::size_t>(row) * categories(index).size() + static_cast<std::size_t>(code)] = 1;
      }
    }
    return from_tensor(output(index), hot);
  }
};

class LabelEncoder final : public Encoder {
 public:
  using Encoder::Encoder;
  std::unique_ptr<Learner> learner() const override { return learn(true); }

  base::Result<Changes> change_back(const Table& table) const override {
    constexpr std::string_view kWho = "LabelEncoder.inverse_transform";
    TRIREME_ASSIGN(const Column* numbers, table.find(output(0), kWho));
    const auto& labels = categories(0).values();
    std::vector<const Value*> chosen;
    for (std::int64_t row = 0; row < numbers->rows(); ++row) {
      if (null_at(*numbers->array, row)) {
        chosen.push_back(nullptr);
        continue;
      }
      const double number =
          is_number(numbers->format()) ? number_at(*numbers->schema, *numbers->array, row) : std::nan("");
      if (!(number >= 0 && number < static_cast<double>(labels.size()) && std::trunc(number) == number)) {
        return base::error("{}: column '{}' has values other than the label numbers 0 to {}", kWho, output(0),
                           labels.size() - 1);
      }
      chosen.push_back(&labels[static_cast<std::size_t>(number)]);
    }
    TRIREME_ASSIGN(const auto type, schema_for(labels), "{}", kWho);
    TRIREME_ASSIGN(auto column, from_values(this->column(0), *type, chosen), "{}", kWho);
    Changes changes;
    changes.columns.push_back(std::move(column));
    return changes;
  }

 private:
  base::Result<Column> changed(const Table& table, std::size_t index) const override {
    TRIREME_ASSIGN(const Column* found, without_nulls(table, column(index), name()));
    TRIREME_ASSIGN(auto codes, categories(index).codes(*found, name()));
    return from_numbers(output(index), std::move(codes));
  }
};

base::Result<Most> most_in(Arguments& arguments, const std::vector<std::string>& columns) {
  Most most;
  if (arguments.get("max_categories").is_null()) arguments.set("max_categories", Dict());
  TRIREME_ASSIGN(const auto pairs, decoded_pairs(arguments.get("max_categories")), "max_categories");
  for (const auto& [name, number] : pairs) {
    const auto* column = name.get_if<std::string>();
    if (!column || std::find(columns.begin(), columns.end(), *column) == columns.end()) {
      return base::error("max_categories names {}, which is not in columns={}", python_text(name),
                         python_text(list_of(columns)));
    }
    const auto* whole = number.get_if<std::int64_t>();
    if (!whole || *whole < 1)
      return base::error("max_categories={}: {} needs at least 1", python_text(arguments.get("max_categories")),
                         python_text(name));
    most[*column] = *whole;
  }
  return most;
}

template <typename Hot>
Made hot_encoder(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(auto most, most_in(given, names.columns));
  return make_impl<Hot>(std::move(names), std::move(most));
}

}  // namespace

Made make_ordinal_encoder(Arguments& given) {
  TRIREME_ASSIGN(auto names, InOut::of(given));
  TRIREME_ASSIGN(const bool encode_lists, given.flag("encode_lists", true));
  return make_impl<OrdinalEncoder>(std::move(names), encode_lists);
}

Made make_one_hot_encoder(Arguments& given) { return hot_encoder<OneHotEncoder>(given); }
Made make_multi_hot_encoder(Arguments& given) { return hot_encoder<MultiHotEncoder>(given); }

Made make_label_encoder(Arguments& given) {
  TRIREME_ASSIGN(const auto label, given.text("label_column"));
  TRIREME_ASSIGN(const auto output, given.text("output_column", label));
  return make_impl<LabelEncoder>(InOut{{label}, {output}});
}

}  // namespace trireme::preprocess
