#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "api/dataset_arrays.h"
#include "base/result.h"
#include "data/batch.h"
#include "trireme/value.h"

namespace trireme::api::preprocessing {

// One column of a record batch, on its own.
struct Column {
  std::string name;
  OwnedSchema schema;
  OwnedArray array;

  std::string_view format() const { return schema->format; }
  // "large_string", "list<int64>".
  std::string type() const;
  std::int64_t rows() const { return array->length; }
};

// What a preprocessor makes of a table: columns that take the place of those with their names or are put at the end.
struct Changes {
  std::vector<Column> columns;
  std::vector<std::string> dropped;
};

// A record batch, taken apart. Columns that nobody changes keep their memory and their type.
class Table {
 public:
  explicit Table(Record record);
  static Table of(const data::Batch& batch);

  std::int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  // The error names the columns that there are.
  base::Result<const Column*> find(const std::string& name, std::string_view who) const;
  // The columns have as many rows as the table, unless all of them are replaced.
  void apply(Changes changes);
  Record record() &&;
  // The same for a while: the table stays the owner.
  Record lent() const;
  std::vector<Column> taken() && { return std::move(columns_); }

 private:
  std::int64_t rows_ = 0;
  std::vector<Column> columns_;
};

// The array for somebody who reads it while its owner has it.
OwnedArray lent(const OwnedArray& array);
// The same type for somebody else, without metadata.
OwnedSchema copied(const ArrowSchema& schema);

base::Error no_column(const std::string& name, std::string_view who, const std::vector<std::string>& columns);

// A tensor for each column of numbers, and a list for each that has nulls or other things.
base::Result<Dict> columns_as_values(Table table);

}  // namespace trireme::api::preprocessing
