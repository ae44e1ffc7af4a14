#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/arrow_owned.h"

namespace trireme::data {

// The memory layout of a column.
enum class Kind {
  kNull,
  kBool,       // one bit per value
  kFixed,      // `width` bytes per value: numbers, dates and times, decimals, binary of a fixed size
  kText,       // strings and binary: offsets (32 or 64 bits, `width` bytes) and bytes
  kFixedList,  // `length` values of one child per row
  kList,       // offsets (`width` bytes) into one child
  kStruct,
};

struct Type {
  Kind kind = Kind::kNull;
  std::string format;  // Arrow's
  std::int64_t width = 0;
  std::int64_t length = 0;
  std::vector<Type> children;
  // The values of a dictionary. Our batches have them instead of the indices.
  bool dictionary = false;
  std::string index_format;

  bool operator==(const Type&) const = default;
  // For example "float", "list<string>", "fixed_size_list<float>[10]".
  std::string text() const;
};

struct Field {
  std::string name;
  Type type;
  // Shape of one row if the column holds tensors (Arrow's fixed_shape_tensor, or nested lists of fixed size).
  std::vector<std::int64_t> tensor_shape;
};

// The columns of a table. Immutable and shared by all its chunks and batches.
class Schema {
 public:
  // The error names the column with an unsupported type.
  static base::Result<std::shared_ptr<const Schema>> take(OwnedSchema schema);

  const std::vector<Field>& fields() const { return fields_; }
  std::optional<std::size_t> find(std::string_view name) const;
  // "column 'x' is string, but double in the others" for the first column that differs in name, type or order.
  base::Result<void> check_same(const Schema& other) const;
  // A copy for our batches: dictionaries are resolved, metadata is kept.
  OwnedSchema exported() const;

 private:
  Schema() = default;

  OwnedSchema c_;
  std::vector<Field> fields_;
};

}  // namespace trireme::data
