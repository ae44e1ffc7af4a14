#pragma once

#include <cstdint>
#include <list>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/arrays.h"
#include "data/batch.h"

namespace trireme::preprocess {

using data::OwnedArray;
using data::OwnedSchema;
using data::Record;

// A single column of a record batch.
struct Column {
  std::string name;
  OwnedSchema schema;
  OwnedArray array;

  std::string_view format() const { return schema->format; }
  // For example "large_string", "list<int64>".
  std::string type() const;
  std::int64_t rows() const { return array->length; }
};

// The output of a preprocessor: columns that replace those of the same name or are appended.
struct Changes {
  std::vector<Column> columns;
  std::vector<std::string> dropped;
};

// A record batch of any producer, split into columns. Unchanged columns keep their memory, type and metadata.
class Table {
 public:
  explicit Table(Record record);

  std::int64_t rows() const { return rows_; }
  const std::vector<Column>& columns() const { return columns_; }
  // With the values of a dictionary instead of its indices. The error lists the columns. Valid until apply().
  base::Result<const Column*> find(const std::string& name, std::string_view who) const;
  // The columns have as many rows as the table, unless all of them are replaced.
  void apply(Changes changes);
  Record record() &&;
  // A temporary view: the table stays the owner.
  Record lent() const;
  std::vector<Column> taken() && { return std::move(columns_); }

 private:
  std::int64_t rows_ = 0;
  std::vector<Column> columns_;
  mutable std::list<Column> decoded_;  // dictionaries that find() was asked for; a list keeps the addresses
};

// The array for readers, while its owner keeps it.
OwnedArray lent(const OwnedArray& array);
// A copy of the type, without metadata.
OwnedSchema copied(const ArrowSchema& schema);

base::Error no_column(const std::string& name, std::string_view who, const std::vector<std::string>& columns);

}  // namespace trireme::preprocess
