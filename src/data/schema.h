#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/arrow_c.h"

namespace trireme::data {

// What a column's memory looks like.
enum class Kind {
  kNull,
  kBool,       // one bit a value
  kFixed,      // `width` bytes a value: numbers, dates and times, decimals, binary of a fixed size
  kText,       // strings and binary: offsets (32 or 64 bits, `width` bytes) and bytes
  kFixedList,  // `length` values of one child a row
  kList,       // offsets (`width` bytes) into one child
  kStruct,
};

struct Type {
  Kind kind = Kind::kNull;
  std::string format;  // Arrow's
  std::int64_t width = 0;
  std::int64_t length = 0;
  std::vector<Type> children;
  // The values of a dictionary: batches that we make have them in place of the indices.
  bool dictionary = false;
  std::string index_format;

  bool operator==(const Type&) const = default;
  // "float", "list<string>", "fixed_size_list<float>[10]".
  std::string text() const;
};

struct Field {
  std::string name;
  Type type;
  // Of one row, where it is known to be a tensor (Arrow's fixed_shape_tensor, or nested lists of fixed size).
  std::vector<std::int64_t> tensor_shape;
};

// The columns of a table. Shared by all its chunks and batches, never written again.
class Schema {
 public:
  // Takes it over, whether it can be used or not. The error names the column with a type that we do not read.
  static base::Result<std::shared_ptr<const Schema>> take(ArrowSchema& schema);
  ~Schema();
  Schema(const Schema&) = delete;
  Schema& operator=(const Schema&) = delete;

  const std::vector<Field>& fields() const { return fields_; }
  std::optional<std::size_t> find(std::string_view name) const;
  // "column 'x' is string, and double in the others" for the first column that differs in name, type or order.
  base::Result<void> check_same(const Schema& other) const;
  // A copy for somebody else, of what our batches have: dictionaries are resolved, metadata is kept.
  void export_to(ArrowSchema& out) const;

 private:
  Schema() = default;

  ArrowSchema c_{};
  std::vector<Field> fields_;
};

}  // namespace trireme::data
