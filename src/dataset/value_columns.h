#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/value.h"

// Columns from untyped values: JSON, SQLite rows, decoded samples.

namespace trireme::arrow {

// nullptr: no value.
using ValuePointers = std::vector<const Value*>;

// The common type of the values: mixed integers and floats are floats, lists and dicts are inferred recursively,
// tensors of different shapes are ragged. The error names the row that does not fit.
::arrow::Result<std::shared_ptr<::arrow::Field>> infer_column(const std::string& name, const ValuePointers& rows);

// Builds a column with a type that infer_column() returned for these or other rows. The error names the value that does
// not fit.
::arrow::Result<std::shared_ptr<::arrow::Array>> build_column(const ::arrow::Field& field, const ValuePointers& rows);

}  // namespace trireme::arrow
