#pragma once

#include <arrow/array.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>
#include <string>
#include <vector>

#include "trireme/value.h"

// Columns of what has no types of its own: JSON, the rows of SQLite, decoded samples.

namespace trireme::arrow {

// nullptr: no value.
using ValuePointers = std::vector<const Value*>;

// The type that all of them have: whole numbers and others are numbers, lists and dicts are taken apart, tensors of
// different shapes are ragged. The error names the row that does not fit.
::arrow::Result<std::shared_ptr<::arrow::Field>> infer_column(const std::string& name, const ValuePointers& rows);

// With a type that infer_column() has given for these rows or for others; the error says which value does not fit.
::arrow::Result<std::shared_ptr<::arrow::Array>> build_column(const ::arrow::Field& field, const ValuePointers& rows);

}  // namespace trireme::arrow
