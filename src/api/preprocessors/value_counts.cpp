#include <algorithm>

#include "api/preprocessors/categories.h"
#include "api/preprocessors/dates.h"
#include "api/preprocessors/statistics.h"
#include "data/type_format.h"

namespace trireme::api::preprocessing {
namespace {

bool is_category(std::string_view format) {
  return is_number(format) || is_text(format) || is_bytes(format) || is_date(format) || format == "n";
}

Value value_of(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::string_view format = type.format;
  if (null_at(array, index)) return {};
  if (is_text(format)) return text_at(type, array, index);
  if (is_bytes(format)) return Bytes{std::string(text_at(type, array, index))};
  if (format == "b") return whole_at(type, array, index) != 0;
  if (is_date(format)) return Dict{{std::string(date_kind(format)), date_at(type, array, index)}};
  if (is_floating(format)) return number_at(type, array, index);
  if (!is_list(format)) return whole_at(type, array, index);
  const Inside inside = list_at(type, array, index);
  List list;
  for (std::int64_t i = 0; i < inside.count; ++i)
    list.push_back(value_of(*inside.type, *inside.values, inside.first + i));
  return list;
}

class Counter {
 public:
  Counter(std::string name, std::string_view who, CountOptions options)
      : name_(std::move(name)), who_(who), options_(options) {}

  base::Result<void> add(const Column& column) {
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

  base::Result<Counted> done() && {
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
    std::int64_t place = places_.find(type, array, index, key_);
    if (place < 0) {
      place = static_cast<std::int64_t>(counted_.values.size());
      places_.add(key_, place);
      counted_.values.push_back(value_of(type, array, index));
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
  std::string key_;
};

}  // namespace

base::Result<std::vector<Counted>> value_counts(const Dataset& dataset, const std::vector<std::string>& columns,
                                                std::string_view who, CountOptions options) {
  std::vector<Counter> counters;
  for (const auto& name : columns) counters.emplace_back(name, who, options);
  const auto count = [&](const Table& table) -> base::Result<void> {
    for (std::size_t i = 0; i < columns.size(); ++i) {
      TRIREME_ASSIGN(const Column* column, table.find(columns[i], who));
      TRIREME_TRY(counters[i].add(*column));
    }
    return {};
  };
  TRIREME_TRY(for_each_table(dataset, columns, who, count));
  std::vector<Counted> found;
  for (auto& counter : counters) {
    TRIREME_ASSIGN(auto counted, std::move(counter).done());
    found.push_back(std::move(counted));
  }
  return found;
}

}  // namespace trireme::api::preprocessing
