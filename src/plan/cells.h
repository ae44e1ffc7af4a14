#pragma once

#include <cstdint>
#include <deque>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "data/batch.h"
#include "plan/record.h"
#include "trireme/value.h"

namespace trireme::plan {

// Holds any integer of a column, signed or not, and the sum of very many.
__extension__ typedef __int128 Whole;

enum class CellKind {
  kNull,
  kBool,
  kWhole,
  kReal,
  kText,
  kBytes,
  kTime,   // dates, times, durations: as stored numbers
  kOther,  // lists and similar: only whether they are null
};

struct CellType {
  CellKind kind = CellKind::kNull;
  int bits = 64;          // for numbers
  bool is_signed = true;  // for integers
  std::string name = {};  // for kTime and kOther: Arrow's name

  bool is_number() const { return kind == CellKind::kWhole || kind == CellKind::kReal; }
  bool is_text() const { return kind == CellKind::kText || kind == CellKind::kBytes; }
  // For example "int64", "double", "timestamp[us]".
  std::string text() const;

  bool operator==(const CellType&) const = default;
};

// A column as plain values, for access to each of them.
struct Cells {
  CellType type = {};
  bool constant = false;  // one value for all rows
  std::vector<std::uint8_t> valid = {};
  std::vector<Whole> wholes = {};  // kBool, kWhole, kTime
  std::vector<double> reals = {};
  std::vector<std::string_view> texts = {};
  std::shared_ptr<const void> owner = {};  // of the texts; shared by derived cells

  std::size_t size() const { return valid.size(); }
  std::size_t at(std::size_t row) const { return constant ? 0 : row; }
  bool is_valid(std::size_t row) const { return valid[at(row)] != 0; }
  Whole whole(std::size_t row) const { return wholes[at(row)]; }
  // Also for integers.
  double real(std::size_t row) const {
    return type.kind == CellKind::kReal ? reals[at(row)] : static_cast<double>(wholes[at(row)]);
  }
  std::string_view text(std::size_t row) const { return texts[at(row)]; }
  // Integers beyond 64 bits are clamped.
  Value value(std::size_t row) const;
};

// Cells of that type with `rows` nulls, to be filled in.
Cells cells_of_type(CellType type, std::size_t rows);
Cells constant_cells(const Value& value);
Cells cells_of(const data::Batch& batch, std::size_t column);
// A column for a batch; not for kTime and kOther.
void to_arrow(const Cells& cells, std::size_t rows, const std::string& name, OwnedSchema& schema, OwnedArray& array);

}  // namespace trireme::plan
