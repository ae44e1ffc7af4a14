#pragma once

#include <cstdint>
#include <span>

#include "base/result.h"
#include "plan/record.h"
#include "plan/value_types.h"
#include "trireme/export.h"

// Rows and columns of plain values as record batches.

namespace trireme::plan {

// With the columns of columns_of(), or wider ones. Missing keys and columns are null. The error names the column and
// the row of an integer that the column's type cannot hold; `first`: number of the first row.
TRIREME_API base::Result<Record> record_of_rows(std::span<const Dict> rows, const Columns& columns,
                                                std::int64_t first = 0);

// Each value is a tensor of shape [rows, ...] or a list of `rows` values. Tensors of the column's type are not copied,
// except for booleans.
base::Result<Record> record_of_columns(const Dict& values, const Columns& columns, std::int64_t first = 0);
// With the types of the values themselves.
TRIREME_API base::Result<Record> record_of_columns(const Dict& values);

}  // namespace trireme::plan
