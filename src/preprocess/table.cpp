#include "preprocess/table.h"

#include <algorithm>

#include "base/text.h"
#include "data/type_format.h"

namespace trireme::preprocess {
namespace {

base::Result<Column> without_dictionary(const Column& column, std::string_view who) {
  std::vector<data::RecordColumn> only;
  only.push_back({copied(*column.schema), lent(column.array)});
  TRIREME_ASSIGN(const auto batch, data::batch_of(data::record_of(std::move(only), column.rows())), "{}: column '{}'",
                 who, column.name);
  return std::move(Table(batch.exported()).taken().front());
}

}  // namespace

std::string Column::type() const {
  const auto parsed = data::parse_type(*schema);
  return parsed ? parsed->text() : std::string(schema->format);
}

Table::Table(Record record) : rows_(record.array->length) {
  const std::int64_t offset = record.array->offset;
  for (auto& [schema, array] : data::split(std::move(record))) {
    std::string name = schema->name ? schema->name : "";
    columns_.push_back({std::move(name), std::move(schema), std::move(array)});
    ArrowArray& column = *columns_.back().array;
    if (offset == 0 && column.length == rows_) continue;
    column.offset += offset;  // the rows of the batch are a part of the column
    column.length = rows_;
    column.null_count = column.null_count == 0 ? 0 : -1;
  }
}

base::Error no_column(const std::string& name, std::string_view who, const std::vector<std::string>& columns) {
  return base::error("{}: no column named '{}'; the columns are {}", who, name,
                     columns.empty() ? "(none)" : base::join(columns, ", "));
}

base::Result<const Column*> Table::find(const std::string& name, std::string_view who) const {
  const auto named = [&](const Column& column) { return column.name == name; };
  const auto found = std::find_if(columns_.begin(), columns_.end(), named);
  if (found == columns_.end()) {
    std::vector<std::string> names;
    for (const auto& column : columns_) names.push_back(column.name);
    return no_column(name, who, names);
  }
  if (!found->schema->dictionary) return &*found;
  const auto before = std::find_if(decoded_.begin(), decoded_.end(), named);
  if (before != decoded_.end()) return &*before;
  TRIREME_ASSIGN(auto decoded, without_dictionary(*found, who));
  decoded_.push_back(std::move(decoded));
  return &decoded_.back();
}

void Table::apply(Changes changes) {
  decoded_.clear();
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
  std::vector<data::RecordColumn> columns;
  for (auto& column : columns_) {
    columns.push_back({data::renamed(std::move(column.schema), column.name), std::move(column.array)});
  }
  return data::record_of(std::move(columns), rows_);
}

Record Table::lent() const {
  std::vector<data::RecordColumn> columns;
  for (const auto& column : columns_) {
    columns.push_back({data::renamed(copied(*column.schema), column.name), preprocess::lent(column.array)});
  }
  return data::record_of(std::move(columns), rows_);
}

OwnedArray lent(const OwnedArray& array) {
  ArrowArray view = *array;
  view.release = [](ArrowArray* released) { released->release = nullptr; };
  return OwnedArray(view);
}

OwnedSchema copied(const ArrowSchema& schema) {
  std::vector<OwnedSchema> children;
  for (std::int64_t i = 0; i < schema.n_children; ++i) children.push_back(copied(*schema.children[i]));
  auto made = data::make_schema(schema.format, schema.name ? schema.name : "", std::move(children));
  return schema.dictionary ? data::with_dictionary(std::move(made), copied(*schema.dictionary)) : std::move(made);
}

}  // namespace trireme::preprocess
