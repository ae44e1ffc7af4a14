#pragma once

#include <arrow/datum.h>
#include <arrow/record_batch.h>
#include <arrow/result.h>
#include <arrow/type.h>

#include <memory>

// One schema for tables whose types differ.

namespace trireme::dataset {

// Dictionaries (categorical columns) as their values.
std::shared_ptr<::arrow::Schema> decoded(const ::arrow::Schema& schema);
::arrow::Result<std::shared_ptr<::arrow::RecordBatch>> decoded(const std::shared_ptr<::arrow::RecordBatch>& batch);

// The columns of all schemas, by name and in order of first appearance, in types that hold the values of each without
// loss (Arrow's permissive rules, but decimals never become floats and text never bytes). Throws for types that have no
// such type.
std::shared_ptr<::arrow::Schema> unified(const std::vector<std::shared_ptr<::arrow::Schema>>& schemas);

// The same for one column; nullptr if the types have no such type.
std::shared_ptr<::arrow::Field> unified(const std::shared_ptr<::arrow::Field>& one,
                                        const std::shared_ptr<::arrow::Field>& other);

// Floats with one zero and one NaN, as Arrow's hash tables compare bits; other arrays unchanged.
::arrow::Result<::arrow::Datum> plain_floats(const ::arrow::Datum& values);

// 64-bit integers as float64 distances from `origin`: large ones would be rounded. Other values unchanged.
::arrow::Result<::arrow::Datum> distances(const ::arrow::Datum& values, const ::arrow::Datum& origin);

// The batch with the columns of the schema: casts that lose nothing, nulls for missing columns.
::arrow::Result<std::shared_ptr<::arrow::RecordBatch>> conformed(const ::arrow::RecordBatch& batch,
                                                                 const std::shared_ptr<::arrow::Schema>& schema);

}  // namespace trireme::dataset
