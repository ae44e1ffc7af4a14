#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "data/array_memory.h"
#include "data/arrow_owned.h"
#include "trireme/export.h"

// Converts tf.train.Example, a protocol buffer with named features, to columns. Does not need protobuf: three messages
// are parsed by hand.

namespace trireme::formats {

enum class FeatureKind : std::uint8_t { kNone, kBytes, kFloat, kInt };

struct FeatureColumn {
  std::string name;
  char format = 'z';  // Arrow's: 'z', 'Z' and 'u' for bytes, 'f' for floats, 'l' for integers
  bool list = false;

  bool operator==(const FeatureColumn&) const = default;
  FeatureKind kind() const;
  // For example "int64", "list<string>".
  std::string type() const;
  // The inverse. The error lists the valid types.
  TRIREME_API static base::Result<FeatureColumn> of(std::string name, std::string_view type);
};

// Infers the columns from the first examples: a feature with one value in each of them is a single value, others are
// lists.
class TRIREME_API FeatureTypes {
 public:
  base::Result<void> look(std::string_view example);
  // By name; empty if there were no features.
  std::vector<FeatureColumn> columns() const;

 private:
  struct Seen {
    FeatureKind kind = FeatureKind::kNone;
    bool list = false;
  };
  std::map<std::string, Seen, std::less<>> seen_;
};

// Combines examples into record batches.
class TRIREME_API ExampleColumns {
 public:
  // `known`: names that an example may have in addition to the columns. Without columns, examples are only counted.
  ExampleColumns(std::vector<FeatureColumn> columns, const std::vector<std::string>& known);

  base::Result<void> add(std::string_view example);
  std::int64_t rows() const { return rows_; }
  // Returns the rows so far, and starts over.
  data::OwnedArray take();
  data::OwnedSchema schema() const;

 private:
  struct Slot {
    FeatureKind kind = FeatureKind::kNone;
    std::string_view content;
  };
  struct Column {
    FeatureColumn what;
    std::vector<std::uint8_t> valid;         // one byte per row
    std::vector<std::int32_t> list_offsets;  // for lists
    std::vector<std::int64_t> offsets;       // for text
    std::string values;
    Slot slot;  // of the current example
  };

  base::Result<void> append(Column& column);
  static data::OwnedArray take_values(Column& column, const data::Validity& validity);

  std::vector<Column> columns_;
  std::unordered_map<std::string_view, std::size_t> places_;  // names of columns_, and known_ with kNowhere
  std::vector<std::string> known_;
  std::int64_t rows_ = 0;
};

}  // namespace trireme::formats
