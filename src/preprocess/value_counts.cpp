#include <algorithm>

#include "data/type_format.h"
#include "preprocess/big_int.h"
#include "preprocess/categories.h"
#include "preprocess/decimals.h"
#include "preprocess/statistics.h"
#include "preprocess/temporal.h"

namespace trireme::preprocess {
namespace {

bool is_category(std::string_view format) {
  return is_number(format) || is_text(format) || is_bytes(format) || temporal_kind(format) || is_decimal(format) ||
         format == "n";
}

class Counter {
 public:
  Counter(std::string name, std::string_view who, CountOptions options)
      : name_(std::move(name)), who_(who), options_(options) {}

  base::Result<void> add(const Table& table) {
    TRIREME_ASSIGN(const Column* found, table.find(name_, who_));
    const Column& column = *found;
    const bool lists = is_list(column.format());
    const ArrowSchema* innermost = &*column.schema;
    if (lists) innermost = innermost->children[0];
    while (!options_.inside_lists && is_list(innermost->format)) innermost = innermost->children[0];
    if (!is_category(innermost->format)) return no_category(lists ? *innermost : *column.schema);
    for (std::int64_t i = 0; i < column.rows(); ++i) {
      if (!lists || !options_.inside_lists) {
        TRIREME_TRY(count(*column.schema, *column.array, i));
        continue;
      }
      TRIREME_ASSIGN(const bool missing, skipped(*column.schema, *column.array, i));
      if (missing) continue;
      const Inside inside = list_at(*column.schema, *column.array, i);
      for (std::int64_t j = 0; j < inside.count; ++j) {
        TRIREME_TRY(count(*inside.type, *inside.values, inside.first + j));
      }
    }
    return {};
  }

  base::Result<Counted> done() {
    if (counted_.values.empty()) return nothing_to_learn_from(name_, who_);
    return std::move(counted_);
  }

 private:
  base::Error no_category(const ArrowSchema& type) const {
    const auto parsed = data::parse_type(type);
    return base::error("{}: column '{}' is {}, which cannot be a category", who_, name_,
                       parsed ? parsed->text() : std::string(type.format));
  }

  base::Result<bool> skipped(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) const {
    if (!missing_at(type, array, index)) return false;
    if (!options_.skip_nulls) return nulls_in(name_, who_);
    return true;
  }

  base::Result<void> count(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
    TRIREME_ASSIGN(const bool missing, skipped(type, array, index));
    if (missing) return {};
    std::int64_t place = places_.find(type, array, index);
    if (place < 0) {
      place = static_cast<std::int64_t>(counted_.values.size());
      places_.add(type, array, index, place);
      TRIREME_ASSIGN(auto value, value_of(type, array, index), "{}: column '{}'", who_, name_);
      counted_.values.push_back(std::move(value));
      counted_.counts.push_back(0);
    }
    ++counted_.counts[static_cast<std::size_t>(place)];
    return {};
  }

  std::string name_;
  std::string_view who_;
  CountOptions options_;
  Places places_;
  Counted counted_;
};

}  // namespace

base::Result<Value> value_of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  if (null_at(array, index)) return Value();
  if (is_text(format)) return Value(text_at(type, array, index));
  if (is_bytes(format)) return Value(Bytes{std::string(text_at(type, array, index))});
  if (format == "b") return Value(whole_at(type, array, index) != 0);
  if (temporal_kind(format)) return temporal_value(temporal_at(type, array, index));
  if (is_decimal(format)) return Value(Dict{{"$decimal", decimal_text(type, array, index)}});
  if (is_floating(format)) return Value(number_at(type, array, index));
  if (!is_list(format)) {
    const std::int64_t whole = whole_at(type, array, index);
    return format == "L" && whole < 0 ? big_int_value(static_cast<std::uint64_t>(whole)) : Value(whole);
  }
  const Inside inside = list_at(type, array, index);
  List list;
  for (std::int64_t i = 0; i < inside.count; ++i) {
    TRIREME_ASSIGN(auto item, value_of(*inside.type, *inside.values, inside.first + i));
    list.push_back(std::move(item));
  }
  return Value(std::move(list));
}

std::unique_ptr<Learner> learn_counts(const std::vector<std::string>& columns, std::string_view who,
                                      CountOptions options,
                                      std::function<base::Result<Dict>(const std::vector<Counted>&)> finish) {
  std::vector<Counter> counters;
  for (const auto& name : columns) counters.emplace_back(name, who, options);
  return std::make_unique<EachColumnLearner<Counter, Counted>>(std::move(counters), std::move(finish));
}

}  // namespace trireme::preprocess
