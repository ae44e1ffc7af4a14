#pragma once

#include <span>
#include <string>
#include <utility>
#include <vector>

#include "api/dataset_arrays.h"
#include "base/result.h"
#include "trireme/value.h"

// Rows and columns of plain values as record batches.

namespace trireme::api {

// What the values of a column are.
struct ValueType {
  enum class Kind { kNull, kBool, kInt, kFloat, kText, kBytes, kTensor, kList, kDict };

  Kind kind = Kind::kNull;
  DType dtype = DType::kF32;                                // kTensor
  std::vector<std::int64_t> shape;                          // kTensor
  std::vector<std::pair<std::string, ValueType>> children;  // of kList one, without a name; of kDict each key

  bool operator==(const ValueType&) const = default;
  // "int", "list of float", "F32[2, 3]".
  std::string text() const;
};

using Columns = std::vector<std::pair<std::string, ValueType>>;

// The columns of the rows: each has all of them. Nulls fit anything, whole numbers fit among others.
base::Result<Columns> columns_of(std::span<const Dict> rows);

// As `expected` says, whole numbers and nulls made what they are there; the error names row and column.
base::Result<Record> record_of_rows(std::span<const Dict> rows, const Columns& expected);

// Each value a tensor of shape [rows, ...] or a list of `rows` values. Tensors are not copied (booleans are).
base::Result<Record> record_of_columns(const Dict& columns);

}  // namespace trireme::api
