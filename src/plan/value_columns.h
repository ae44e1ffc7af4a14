#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "plan/record.h"
#include "trireme/value.h"

// Rows and columns of plain values as record batches.

namespace trireme::plan {

// The type of a column's values.
struct ValueType {
  enum class Kind { kNull, kBool, kInt, kFloat, kText, kBytes, kTensor, kList, kDict };

  Kind kind = Kind::kNull;
  DType dtype = DType::kF32;                                // kTensor
  std::vector<std::int64_t> shape;                          // kTensor
  std::vector<std::pair<std::string, ValueType>> children;  // kList: one, without a name; kDict: one per key

  bool operator==(const ValueType&) const = default;
  // For example "int", "list of float", "F32[2, 3]".
  std::string text() const;
};

using Columns = std::vector<std::pair<std::string, ValueType>>;

// The columns of the rows. Each row must have all of them. Nulls match any type, and integers match floats.
base::Result<Columns> columns_of(std::span<const Dict> rows);

// With the types of `expected`; integers and nulls are converted. The error names row and column.
base::Result<Record> record_of_rows(std::span<const Dict> rows, const Columns& expected);

// Each value is a tensor of shape [rows, ...] or a list of `rows` values. Tensors are not copied, except for booleans.
base::Result<Record> record_of_columns(const Dict& columns);

}  // namespace trireme::plan
