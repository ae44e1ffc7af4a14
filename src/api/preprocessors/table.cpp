#include "api/preprocessors/table.h"

#include <algorithm>

#include "base/text.h"
#include "data/type_format.h"
#include "plan/rows.h"

namespace trireme::api::preprocessing {

std::string Column::type() const {
  const auto parsed = data::parse_type(*schema);
  return parsed ? parsed->text() : std::string(schema->format);
}

Table::Table(Record record) : rows_(record.array->length) {
  for (std::int64_t i = 0; i < record.schema->n_children; ++i) {
    // Moving the struct moves the child out; the original counts as released.
    ArrowSchema& schema = *record.schema->children[i];
    ArrowArray& array = *record.array->children[i];
    columns_.push_back({schema.name ? schema.name : "", OwnedSchema(schema), OwnedArray(array)});
    schema.release = nullptr;
    array.release = nullptr;
  }
}

Table Table::of(const data::Batch& batch) {
  Record record;
  batch.export_to(*record.array, *record.schema);
  return Table(std::move(record));
}

base::Error no_column(const std::string& name, std::string_view who, const std::vector<std::string>& columns) {
  return base::error("{}: no column named '{}'; the columns are {}", who, name,
                     columns.empty() ? "(none)" : base::join(columns, ", "));
}

base::Result<const Column*> Table::find(const std::string& name, std::string_view who) const {
  std::vector<std::string> names;
  for (const auto& column : columns_) {
    if (column.name == name) return &column;
    names.push_back(column.name);
  }
  return no_column(name, who, names);
}

void Table::apply(Changes changes) {
  std::erase_if(columns_, [&](const Column& column) {
    return std::find(changes.dropped.begin(), changes.dropped.end(), column.name) != changes.dropped.end();
  });
  for (auto& made : changes.columns) {
    const auto place =
        std::find_if(columns_.begin(), columns_.end(), [&](const Column& column) { return column.name == made.name; });
    if (place == columns_.end()) columns_.push_back(std::move(made));
    else *place = std::move(made);
  }
  if (!columns_.empty()) rows_ = columns_.front().rows();
}

Record Table::record() && {
  std::vector<OwnedSchema> schemas;
  std::vector<OwnedArray> arrays;
  for (auto& column : columns_) {
    schemas.push_back(renamed(std::move(column.schema), column.name));
    arrays.push_back(std::move(column.array));
  }
  return record_of(std::move(schemas), std::move(arrays), rows_);
}

Record Table::lent() const {
  std::vector<OwnedSchema> schemas;
  std::vector<OwnedArray> arrays;
  for (const auto& column : columns_) {
    schemas.push_back(renamed(copied(*column.schema), column.name));
    arrays.push_back(preprocessing::lent(column.array));
  }
  return record_of(std::move(schemas), std::move(arrays), rows_);
}

OwnedArray lent(const OwnedArray& array) {
  ArrowArray view = *array;
  view.release = [](ArrowArray* released) { released->release = nullptr; };
  return OwnedArray(view);
}

OwnedSchema copied(const ArrowSchema& schema) {
  std::vector<OwnedSchema> children;
  for (std::int64_t i = 0; i < schema.n_children; ++i) children.push_back(copied(*schema.children[i]));
  return make_schema(schema.format, schema.name ? schema.name : "", std::move(children));
}

base::Result<Dict> columns_as_values(Table table) {
  TRIREME_ASSIGN(const auto batch, batch_of(std::move(table).record()));
  const auto& fields = batch.schema()->fields();
  Dict values;
  std::vector<std::size_t> others;
  for (std::size_t i = 0; i < fields.size(); ++i) {
    auto tensor = batch.tensor(i);
    values[fields[i].name] = tensor ? Value(*std::move(tensor)) : Value(List());
    if (!tensor) others.push_back(i);
  }
  if (others.empty()) return values;
  TRIREME_ASSIGN(auto rows, rows_of(batch));
  for (const std::size_t column : others) {
    List list;
    for (auto& row : rows) list.push_back(std::move(row.begin()[static_cast<std::ptrdiff_t>(column)].second));
    values[fields[column].name] = std::move(list);
  }
  return values;
}

}  // namespace trireme::api::preprocessing
