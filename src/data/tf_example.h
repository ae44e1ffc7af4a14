#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/result.h"
#include "data/arrow_c.h"
#include "trireme/export.h"

// tf.train.Example, a protocol buffer with named features, as columns. Without protobuf: three messages are read by
// hand.

namespace trireme::data {

enum class FeatureKind : std::uint8_t { kNone, kBytes, kFloat, kInt };

struct FeatureColumn {
  std::string name;
  char format = 'z';  // Arrow's: 'z', 'Z' and 'u' for bytes, 'f' for floats, 'l' for whole numbers
  bool list = false;

  bool operator==(const FeatureColumn&) const = default;
  FeatureKind kind() const;
  // "int64", "list<string>".
  std::string type() const;
  // The other way round. The error names what there is.
  TRIREME_API static base::Result<FeatureColumn> of(std::string name, std::string_view type);
};

// What the columns are, from the first examples: a feature that has one value in each of them is a value, others a
// list.
class TRIREME_API FeatureTypes {
 public:
  base::Result<void> look(std::string_view example);
  // By name; empty where there were no features.
  std::vector<FeatureColumn> columns() const;

 private:
  struct Seen {
    FeatureKind kind = FeatureKind::kNone;
    bool list = false;
  };
  std::map<std::string, Seen, std::less<>> seen_;
};

// Puts examples together into record batches.
class TRIREME_API ExampleColumns {
 public:
  // `known`: names that an example may have, beside those that become columns. No columns: examples are only counted.
  ExampleColumns(std::vector<FeatureColumn> columns, const std::vector<std::string>& known);

  base::Result<void> add(std::string_view example);
  std::int64_t rows() const { return rows_; }
  // The rows so far, and begins anew.
  ArrowArray take();
  ArrowSchema schema() const;

 private:
  struct Slot {
    FeatureKind kind = FeatureKind::kNone;
    std::string_view content;
  };
  struct Column {
    FeatureColumn what;
    std::vector<std::uint8_t> valid;         // a byte a row
    std::vector<std::int32_t> list_offsets;  // of lists
    std::vector<std::int64_t> offsets;       // of text
    std::string values;
    Slot slot;  // of the example that is being added
  };

  base::Result<void> append(Column& column);

  std::vector<Column> columns_;
  std::unordered_map<std::string_view, std::size_t> places_;  // names of columns_, and known_ with kNowhere
  std::vector<std::string> known_;
  std::int64_t rows_ = 0;
};

}  // namespace trireme::data
