#include "grouped_tables.h"

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/compute/api_aggregate.h>
#include <arrow/compute/api_scalar.h>
#include <arrow/compute/cast.h>
#include <arrow/scalar.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>

#include "status.h"
#include "unified.h"

namespace trireme::dataset {
namespace {

namespace acero = ::arrow::acero;
namespace cp = ::arrow::compute;
using TablePointer = std::shared_ptr<::arrow::Table>;
using TypePointer = std::shared_ptr<::arrow::DataType>;

constexpr int kDigits = 38;  // of decimals that hold sums of 64-bit integers

std::string name_of(const data::Aggregate& aggregate) {
  if (!aggregate.name.empty()) return aggregate.name;
  return aggregate.function + "(" + aggregate.column + ")";
}

struct Ends {
  double low = 0;
  double high = 0;
};

// Of a column of integers; 0 without values.
Ends ends_of(const ::arrow::Datum& column) {
  const auto number = [](const std::shared_ptr<::arrow::Scalar>& end) {
    const auto value = check(end->CastTo(::arrow::float64()));
    return value->is_valid ? static_cast<const ::arrow::DoubleScalar&>(*value).value : 0;
  };
  const auto ends = check(cp::MinMax(column)).scalar_as<::arrow::StructScalar>();
  return {number(ends.value[0]), number(ends.value[1])};
}

// Whether Arrow's result would not be exact: sums of integers wrap around, their means are sums of floats, and means of
// decimals are rounded to the decimals' places.
bool needs_digits(const data::Aggregate& aggregate, const std::shared_ptr<::arrow::ChunkedArray>& column) {
  if (aggregate.function != "sum" && aggregate.function != "mean") return false;
  if (::arrow::is_decimal(column->type()->id())) return aggregate.function == "mean";
  if (!::arrow::is_integer(column->type()->id())) return false;
  const Ends ends = ends_of(column);
  return std::max(std::abs(ends.low), std::abs(ends.high)) * static_cast<double>(column->length()) >= 0x1p53;
}

// Large integers as distances from the smallest one, which floats hold exactly: if there are none far away.
bool needs_distances(const std::shared_ptr<::arrow::ChunkedArray>& column) {
  if (!::arrow::is_integer(column->type()->id()) || column->length() == column->null_count()) return false;
  const Ends ends = ends_of(column);
  return ends.high - ends.low < 0x1p53;
}

// The results from exact sums, which are decimals.
::arrow::Datum from_digits(const data::Aggregate& aggregate, const ::arrow::Datum& sums, const ::arrow::Datum& rows,
                           const TypePointer& type) {
  if (aggregate.function == "mean") {
    const auto floats = check(cp::Cast(sums, ::arrow::float64()));
    return check(cp::Divide(floats, check(cp::Cast(rows, ::arrow::float64()))));
  }
  const bool natural = ::arrow::is_unsigned_integer(type->id());
  const auto made = cp::Cast(sums, natural ? ::arrow::uint64() : ::arrow::int64());
  if (made.ok()) return *made;
  const auto ends = check(cp::MinMax(sums)).scalar_as<::arrow::StructScalar>();
  const auto text = [&](int index) { return ends.value[static_cast<std::size_t>(index)]->ToString(); };
  throw std::runtime_error(name_of(aggregate) + ": " + (text(0).size() > text(1).size() ? text(0) : text(1)) +
                           " does not fit into a 64-bit integer; cast the column to float64 or decimal first");
}

// The requested aggregates as Arrow computes them, and those that are computed from exact sums.
struct Wanted {
  struct Exact {
    const data::Aggregate* aggregate;
    TypePointer type;
    std::string rows;  // the column with their numbers
  };
  TablePointer table;
  std::vector<cp::Aggregate> aggregates;
  std::vector<Exact> exact;
};

Wanted wanted(TablePointer table, bool groups, const std::vector<data::Aggregate>& aggregates) {
  // Arrow has two variants of each: per group, and over everything.
  const std::string prefix = groups ? "hash_" : "";
  Wanted made{std::move(table), {}, {}};
  for (std::size_t i = 0; i < aggregates.size(); ++i) {
    const auto& each = aggregates[i];
    const std::string name = name_of(each);
    const auto column = each.column.empty() ? nullptr : made.table->GetColumnByName(each.column);
    if (each.column.empty()) {
      made.aggregates.emplace_back(prefix + "count_all", name);
    } else if (column && needs_digits(each, column)) {
      const std::string digits = "digits of " + name + std::to_string(i);
      const bool whole = ::arrow::is_integer(column->type()->id());
      const auto exact =
          whole ? check(cp::Cast(::arrow::Datum(column), ::arrow::decimal128(kDigits, 0))).chunked_array() : column;
      made.table =
          check(made.table->AddColumn(made.table->num_columns(), ::arrow::field(digits, exact->type()), exact));
      made.aggregates.emplace_back(prefix + "sum", digits, name);
      made.exact.push_back({&each, column->type(), "rows of " + digits});
    } else {
      const bool sample = each.function == "std";
      const auto options = sample ? std::make_shared<cp::VarianceOptions>(/*ddof=*/1) : nullptr;
      std::string input = each.column;
      if (sample && column && needs_distances(column)) {
        const auto ends = check(cp::MinMax(column)).scalar_as<::arrow::StructScalar>();
        const auto away = check(distances(column, ends.value[0])).chunked_array();
        input = "distances of " + name + std::to_string(i);
        made.table = check(made.table->AddColumn(made.table->num_columns(), ::arrow::field(input, away->type()), away));
      }
      made.aggregates.emplace_back(prefix + (sample ? "stddev" : each.function), options, input, name);
    }
  }
  for (const auto& each : made.exact) {
    made.aggregates.emplace_back(prefix + "count", each.aggregate->column, each.rows);
  }
  return made;
}

}  // namespace

TablePointer grouped(TablePointer table, const std::vector<std::string>& keys,
                     const std::vector<data::Aggregate>& aggregates) {
  for (const auto& key : keys) {
    const int index = table->schema()->GetFieldIndex(key);
    if (index < 0) continue;  // refused below
    const auto values = check(plain_floats(table->column(index))).chunked_array();
    table = check(table->SetColumn(index, table->field(index), values));
  }
  auto asked = wanted(std::move(table), !keys.empty(), aggregates);
  auto plan = acero::Declaration::Sequence(
      {{"table_source", acero::TableSourceNodeOptions(asked.table)},
       {"aggregate", acero::AggregateNodeOptions(std::move(asked.aggregates), {keys.begin(), keys.end()})}});
  auto made = check(acero::DeclarationToTable(std::move(plan), /*use_threads=*/false));
  for (const auto& [aggregate, type, rows] : asked.exact) {
    const std::string name = name_of(*aggregate);
    const int index = made->schema()->GetFieldIndex(name);
    const auto result = from_digits(*aggregate, made->column(index), made->GetColumnByName(rows), type);
    made = check(made->SetColumn(index, ::arrow::field(name, result.type()), result.chunked_array()));
    made = check(made->RemoveColumn(made->schema()->GetFieldIndex(rows)));
  }
  return made;
}

}  // namespace trireme::dataset
