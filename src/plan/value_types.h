#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trireme/export.h"
#include "trireme/value.h"

// The types of plain values, and the type that holds the values of two: promoted if nothing is lost, an error
// otherwise. The rules, and the texts of errors, are those of Python's datasets (docs/data.md, "Rules").

namespace trireme::plan {

struct ValueType {
  enum class Kind { kNull, kBool, kInt, kFloat, kText, kBytes, kTensor, kRagged, kList, kDict };

  Kind kind = Kind::kNull;
  DType dtype = DType::kF32;        // kTensor, kRagged: tensors of different shapes
  std::vector<std::int64_t> shape;  // kTensor; empty: a number of another type than kInt, kFloat
  std::vector<std::pair<std::string, ValueType>> children;  // kList: one, without a name; kDict: one per key

  bool operator==(const ValueType&) const = default;
  // In Arrow's words, for example "int64", "list<item: double>", "tensor<float>[2, 3]".
  TRIREME_API std::string text() const;
};

using Columns = std::vector<std::pair<std::string, ValueType>>;

TRIREME_API ValueType number_type(DType dtype);
// The element type of a column of numbers or booleans; nothing for others.
std::optional<DType> dtype_of(const ValueType& type);

base::Result<ValueType> type_of(const Value& value);
// The type that holds the values of both; nothing if there is none. Whether a float holds an integer is checked when
// the integer is converted.
std::optional<ValueType> common_type(const ValueType& first, const ValueType& second);

// The columns of the rows, and of those before them. A key that a row lacks is a null. `first`: number of the first
// row, for errors.
TRIREME_API base::Result<Columns> columns_of(std::span<const Dict> rows, Columns before = {}, std::int64_t first = 0);
// The same for a tensor or a list of values for each column.
base::Result<Columns> columns_of(const Dict& columns, Columns before = {}, std::int64_t first = 0);

}  // namespace trireme::plan
