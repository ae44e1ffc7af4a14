#include <arrow/c/bridge.h>
#include <arrow/compute/api_vector.h>
#include <arrow/table.h>

#include <algorithm>
#include <functional>

#include "grouped_tables.h"
#include "joined_tables.h"
#include "plan/plan.h"
#include "status.h"
#include "table_source.h"
#include "trireme/arrow/data.h"

// Operations on complete tables, done by Arrow: sort_by(), group_by() and join().

namespace trireme::data {
namespace {

using dataset::check;
using dataset::TablePointer;

TablePointer table_of(const Dataset& dataset) {
  return plan::with_widest_types(*dataset.plan(), [&] {
    ArrowArrayStream stream;
    dataset.export_to(&stream);
    return check(check(::arrow::ImportRecordBatchReader(&stream))->ToTable());
  });
}

class Computed final : public dataset::TableSource {
 public:
  Computed(std::string name, std::function<TablePointer()> compute)
      : TableSource(std::move(name)), compute_(std::move(compute)) {}

 private:
  TablePointer compute() override { return compute_(); }

  std::function<TablePointer()> compute_;
};

TablePointer sorted(const TablePointer& table, const std::vector<std::string>& columns, bool descending) {
  namespace compute = ::arrow::compute;
  std::vector<compute::SortKey> keys;
  for (const auto& column : columns) {
    keys.emplace_back(column, descending ? compute::SortOrder::Descending : compute::SortOrder::Ascending);
  }
  const auto indices = check(compute::SortIndices(::arrow::Datum(table), compute::SortOptions(keys)));
  return check(compute::Take(::arrow::Datum(table), ::arrow::Datum(indices))).table();
}

}  // namespace

Dataset sort_by(const Dataset& dataset, const std::vector<std::string>& columns, bool descending) {
  return from_source(
      std::make_shared<Computed>("sort_by()", [=] { return sorted(table_of(dataset), columns, descending); }));
}

Dataset group_by(const Dataset& dataset, const std::vector<std::string>& keys,
                 const std::vector<Aggregate>& aggregates) {
  for (const auto& each : aggregates) {
    if (!each.column.empty() || each.function == "count") continue;
    throw ValueError("group_by: '" + each.function + "' needs a column; only \"count\" works without one");
  }
  return from_source(std::make_shared<Computed>("group_by()", [=] {
    const auto made = dataset::grouped(table_of(dataset), keys, aggregates);
    return keys.empty() ? made : sorted(made, keys, false);
  }));
}

Dataset join(const Dataset& left, const Dataset& right, const std::vector<std::string>& keys, const std::string& how,
             const JoinOptions& options) {
  dataset::Join join{how, keys, options.right_on.empty() ? keys : options.right_on, options.left_suffix,
                     options.right_suffix};
  dataset::check_join(join);
  return from_source(std::make_shared<Computed>(
      "join()", [=, join = std::move(join)] { return dataset::joined(join, table_of(left), table_of(right)); }));
}

}  // namespace trireme::data
