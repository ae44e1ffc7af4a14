#include "joined_tables.h"

#include <arrow/acero/exec_plan.h>
#include <arrow/acero/options.h>
#include <arrow/builder.h>
#include <arrow/compute/api_vector.h>
#include <arrow/compute/cast.h>
#include <arrow/compute/exec.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "status.h"
#include "trireme/value.h"
#include "unified.h"

namespace trireme::dataset {
namespace {

namespace acero = ::arrow::acero;
namespace compute = ::arrow::compute;
using acero::JoinType;
using Names = std::vector<std::string>;
using TablePointer = std::shared_ptr<::arrow::Table>;

// Our names and Ray's.
const std::map<std::string, JoinType>& join_types() {
  static const std::map<std::string, JoinType> types{{"inner", JoinType::INNER},
                                                     {"left", JoinType::LEFT_OUTER},
                                                     {"left_outer", JoinType::LEFT_OUTER},
                                                     {"right", JoinType::RIGHT_OUTER},
                                                     {"right_outer", JoinType::RIGHT_OUTER},
                                                     {"full", JoinType::FULL_OUTER},
                                                     {"full_outer", JoinType::FULL_OUTER},
                                                     {"outer", JoinType::FULL_OUTER},
                                                     {"semi", JoinType::LEFT_SEMI},
                                                     {"left_semi", JoinType::LEFT_SEMI},
                                                     {"right_semi", JoinType::RIGHT_SEMI},
                                                     {"anti", JoinType::LEFT_ANTI},
                                                     {"left_anti", JoinType::LEFT_ANTI},
                                                     {"right_anti", JoinType::RIGHT_ANTI}};
  return types;
}

std::string listed(const Names& names) {
  std::string text;
  for (const auto& each : names) text += (text.empty() ? "" : ", ") + each;
  return text;
}

bool contains(const Names& names, const std::string& name) {
  return std::find(names.begin(), names.end(), name) != names.end();
}

void expect_columns(const ::arrow::Table& table, const Names& names, const char* what) {
  for (const auto& name : names) {
    if (table.schema()->GetFieldIndex(name) >= 0) continue;
    throw ValueError("join(" + std::string(what) + "): no column named '" + name + "'; the columns are " +
                     listed(table.schema()->field_names()));
  }
}

std::string types_of(const ::arrow::Table& table, const Names& names) {
  Names types;
  for (const auto& name : names)
    types.push_back(name + ": " + table.schema()->GetFieldByName(name)->type()->ToString());
  return listed(types);
}

Names key_names(std::size_t count) {
  Names names;
  for (std::size_t i = 0; i < count; ++i) names.push_back("key" + std::to_string(i));
  return names;
}

// The keys and the index of each row.
TablePointer numbered(const ::arrow::Table& table, const Names& on, const std::string& name) {
  std::vector<std::int64_t> numbers(static_cast<std::size_t>(table.num_rows()));
  std::iota(numbers.begin(), numbers.end(), 0);
  ::arrow::Int64Builder builder;
  check(builder.AppendValues(numbers));
  std::vector<std::shared_ptr<::arrow::Field>> fields;
  std::vector<std::shared_ptr<::arrow::ChunkedArray>> columns;
  const Names keys = key_names(on.size());
  for (std::size_t i = 0; i < on.size(); ++i) {
    columns.push_back(check(plain_floats(table.GetColumnByName(on[i]))).chunked_array());
    fields.push_back(::arrow::field(keys[i], columns.back()->type()));
  }
  columns.push_back(std::make_shared<::arrow::ChunkedArray>(check(builder.Finish())));
  fields.push_back(::arrow::field(name, ::arrow::int64()));
  return ::arrow::Table::Make(::arrow::schema(std::move(fields)), std::move(columns), table.num_rows());
}

TablePointer with_type(const TablePointer& table, const std::string& column,
                       const std::shared_ptr<::arrow::DataType>& type) {
  const int index = table->schema()->GetFieldIndex(column);
  if (table->field(index)->type()->Equals(type)) return table;
  const auto cast = check(compute::Cast(::arrow::Datum(table->column(index)), type));
  return check(table->SetColumn(index, ::arrow::field(column, type), cast.chunked_array()));
}

// Arrow matches only keys of one type: int32 and int64, or string and large_string, are the same to users.
void unify_key(TablePointer& left, const std::string& mine, TablePointer& right, const std::string& its) {
  const auto one = left->schema()->GetFieldByName(mine);
  const auto other = right->schema()->GetFieldByName(its);
  if (one->type()->Equals(other->type())) return;
  const auto both = unified(one->WithName("key"), other->WithName("key"));
  if (!both) return;  // refused by the join, with both types
  left = with_type(left, mine, both->type());
  right = with_type(right, its, both->type());
}

std::vector<::arrow::FieldRef> refs_of(const Names& names) { return {names.begin(), names.end()}; }

// The matching rows of left and right, in the order of the left.
TablePointer pairs_of(const Join& join, const ::arrow::Table& left, const ::arrow::Table& right) {
  const JoinType type = join_types().at(join.how);
  const bool only_left = type == JoinType::LEFT_SEMI || type == JoinType::LEFT_ANTI;
  const bool only_right = type == JoinType::RIGHT_SEMI || type == JoinType::RIGHT_ANTI;
  const Names mine = only_right ? Names{} : Names{"left"};
  const Names its = only_left ? Names{} : Names{"right"};
  const auto keys = refs_of(key_names(join.left_on.size()));
  acero::Declaration plan{
      "hashjoin",
      {acero::Declaration{"table_source", acero::TableSourceNodeOptions(numbered(left, join.left_on, "left"))},
       acero::Declaration{"table_source", acero::TableSourceNodeOptions(numbered(right, join.right_on, "right"))}},
      acero::HashJoinNodeOptions(type, keys, keys, refs_of(mine), refs_of(its))};
  const auto found = acero::DeclarationToTable(std::move(plan), /*use_threads=*/false);
  if (!found.ok()) {
    throw ValueError("join: cannot match " + types_of(left, join.left_on) + " with " + types_of(right, join.right_on) +
                     ": " + found.status().message());
  }
  std::vector<compute::SortKey> order;
  for (const auto& name : (*found)->schema()->field_names()) order.emplace_back(name);
  const auto indices = check(compute::SortIndices(::arrow::Datum(*found), compute::SortOptions(order)));
  return check(compute::Take(::arrow::Datum(*found), ::arrow::Datum(indices))).table();
}

TablePointer taken(const TablePointer& table, const ::arrow::Table& pairs, const std::string& side) {
  return check(compute::Take(::arrow::Datum(table), ::arrow::Datum(pairs.GetColumnByName(side)))).table();
}

// Columns under their new names.
class Made {
 public:
  void add(const std::string& name, const std::string& new_name, std::shared_ptr<::arrow::ChunkedArray> column) {
    if (contains(names_, new_name)) {
      throw ValueError("join: column '" + name +
                       "' is in both datasets; set left_suffix or right_suffix, or drop or rename it");
    }
    names_.push_back(new_name);
    fields_.push_back(::arrow::field(new_name, column->type()));
    columns_.push_back(std::move(column));
  }

  TablePointer table(std::int64_t rows) const { return ::arrow::Table::Make(::arrow::schema(fields_), columns_, rows); }

 private:
  Names names_;
  std::vector<std::shared_ptr<::arrow::Field>> fields_;
  std::vector<std::shared_ptr<::arrow::ChunkedArray>> columns_;
};

Names without(const Names& names, const Names& others) {
  Names rest;
  std::copy_if(names.begin(), names.end(), std::back_inserter(rest),
               [&](const auto& name) { return !contains(others, name); });
  return rest;
}

}  // namespace

void check_join(const Join& join) {
  if (!join_types().contains(join.how)) {
    throw ValueError("join: how = '" + join.how +
                     "': expected one of inner, left, left_outer, right, right_outer, full, full_outer, outer, semi, "
                     "left_semi, right_semi, anti, left_anti, right_anti");
  }
  if (join.left_on.empty() || join.left_on.size() != join.right_on.size()) {
    throw ValueError("join: keys [" + listed(join.left_on) + "] and right_on [" + listed(join.right_on) +
                     "] must have the same number of columns, 1 or more");
  }
}

TablePointer joined(const Join& join, TablePointer left, TablePointer right) {
  expect_columns(*left, join.left_on, "keys");
  expect_columns(*right, join.right_on, "right_on");
  const auto given = std::pair(left, right);
  for (std::size_t i = 0; i < join.left_on.size(); ++i) unify_key(left, join.left_on[i], right, join.right_on[i]);
  const auto pairs = pairs_of(join, *left, *right);
  // Rows that are only kept or dropped keep their types.
  if (!pairs->GetColumnByName("right")) return taken(given.first, *pairs, "left");
  if (!pairs->GetColumnByName("left")) return taken(given.second, *pairs, "right");
  const auto mine = taken(left, *pairs, "left");
  const auto its = taken(right, *pairs, "right");
  Made made;
  for (std::size_t i = 0; i < join.left_on.size(); ++i) {
    const auto key = check(compute::CallFunction(
        "coalesce", {mine->GetColumnByName(join.left_on[i]), its->GetColumnByName(join.right_on[i])}));
    made.add(join.left_on[i], join.left_on[i],
             key.is_chunked_array() ? key.chunked_array() : std::make_shared<::arrow::ChunkedArray>(key.make_array()));
  }
  const Names rest = without(left->schema()->field_names(), join.left_on);
  const Names others = without(right->schema()->field_names(), join.right_on);
  for (const auto& name : rest) {
    made.add(name, contains(others, name) ? name + join.left_suffix : name, mine->GetColumnByName(name));
  }
  for (const auto& name : others) {
    made.add(name, contains(rest, name) ? name + join.right_suffix : name, its->GetColumnByName(name));
  }
  return made.table(pairs->num_rows());
}

}  // namespace trireme::dataset
