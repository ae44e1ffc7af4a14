#include "plan/cells.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstdlib>
#include <limits>

#include "base/check.h"
#include "data/array_values.h"
#include "data/bits.h"

namespace trireme::plan {
namespace {

using data::half_at;
using data::number_at;
using data::text_at;

CellType type_of(const data::Type& type) {
  const std::string& format = type.format;
  const char first = format.empty() ? '\0' : format.front();
  if (format.size() == 1) {
    constexpr std::string_view kWholes = "cCsSiIlL";
    if (const auto found = kWholes.find(first); found != std::string_view::npos) {
      return {CellKind::kWhole, 8 << (found / 2), found % 2 == 0, {}};
    }
    switch (first) {
      case 'n': return {};
      case 'b': return {CellKind::kBool};
      case 'e': return {CellKind::kReal, 16};
      case 'f': return {CellKind::kReal, 32};
      case 'g': return {CellKind::kReal, 64};
      case 'u':
      case 'U': return {CellKind::kText};
      case 'z':
      case 'Z': return {CellKind::kBytes};
      default: break;
    }
  }
  if (format.starts_with("w:")) return {CellKind::kBytes};
  if (first == 't' && !format.starts_with("ti"))
    return {CellKind::kTime, static_cast<int>(type.width) * 8, true, type.text()};
  return {CellKind::kOther, 64, true, type.text()};
}

Whole whole_at(const CellType& type, const ArrowArray& array, std::int64_t row) {
  switch (type.bits) {
    case 8:
      return type.is_signed ? Whole{number_at<std::int8_t>(array, 1, row)}
                            : Whole{number_at<std::uint8_t>(array, 1, row)};
    case 16:
      return type.is_signed ? Whole{number_at<std::int16_t>(array, 1, row)}
                            : Whole{number_at<std::uint16_t>(array, 1, row)};
    case 32:
      return type.is_signed ? Whole{number_at<std::int32_t>(array, 1, row)}
                            : Whole{number_at<std::uint32_t>(array, 1, row)};
    default:
      return type.is_signed ? Whole{number_at<std::int64_t>(array, 1, row)}
                            : Whole{number_at<std::uint64_t>(array, 1, row)};
  }
}

std::string_view bytes_at(std::string_view format, const ArrowArray& array, std::int64_t row) {
  if (format == "u" || format == "z") return text_at<std::int32_t>(array, row);
  if (format == "U" || format == "Z") return text_at<std::int64_t>(array, row);
  const auto width = static_cast<std::size_t>(std::atoll(format.data() + 2));  // "w:16"
  return {static_cast<const char*>(array.buffers[1]) + static_cast<std::size_t>(row) * width, width};
}

void read(Cells& cells, std::size_t row, std::string_view format, const ArrowArray& array, std::int64_t index) {
  switch (cells.type.kind) {
    case CellKind::kBool:
      cells.wholes[row] = data::bit_at(static_cast<const std::byte*>(array.buffers[1]), index) ? 1 : 0;
      return;
    case CellKind::kWhole:
    case CellKind::kTime: cells.wholes[row] = whole_at(cells.type, array, index); return;
    case CellKind::kReal:
      cells.reals[row] = cells.type.bits == 64   ? number_at<double>(array, 1, index)
                         : cells.type.bits == 32 ? number_at<float>(array, 1, index)
                                                 : half_at(array, index);
      return;
    case CellKind::kText:
    case CellKind::kBytes: cells.texts[row] = bytes_at(format, array, index); return;
    default: return;
  }
}

// Memory of an array, released with it.
template <typename T, typename Get>
OwnedArray array_of(std::size_t rows, std::int64_t nulls, const std::shared_ptr<std::vector<std::byte>>& validity,
                    Get get) {
  auto values = std::make_shared<std::vector<T>>(std::max<std::size_t>(rows, 1));
  for (std::size_t row = 0; row < rows; ++row) (*values)[row] = static_cast<T>(get(row));
  return make_array(static_cast<std::int64_t>(rows), nulls, {nulls ? validity->data() : nullptr, values->data()},
                    {validity, values});
}

const char* format_of(const CellType& type) {
  switch (type.kind) {
    case CellKind::kBool: return "b";
    case CellKind::kReal: return type.bits == 64 ? "g" : "f";
    case CellKind::kText: return "U";
    case CellKind::kBytes: return "Z";
    case CellKind::kWhole:
      switch (type.bits) {
        case 8: return type.is_signed ? "c" : "C";
        case 16: return type.is_signed ? "s" : "S";
        case 32: return type.is_signed ? "i" : "I";
        default: return type.is_signed ? "l" : "L";
      }
    default: return "n";
  }
}

}  // namespace

std::string CellType::text() const {
  switch (kind) {
    case CellKind::kNull: return "null";
    case CellKind::kBool: return "bool";
    case CellKind::kWhole: return fmt::format("{}int{}", is_signed ? "" : "u", bits);
    case CellKind::kReal: return bits == 64 ? "double" : bits == 32 ? "float" : "halffloat";
    case CellKind::kText: return "string";
    case CellKind::kBytes: return "binary";
    default: return name;
  }
}

Value Cells::value(std::size_t row) const {
  if (!is_valid(row)) return {};
  switch (type.kind) {
    case CellKind::kBool: return Value(whole(row) != 0);
    case CellKind::kWhole:
    case CellKind::kTime: {
      constexpr Whole kLeast = std::numeric_limits<std::int64_t>::min();
      constexpr Whole kMost = std::numeric_limits<std::int64_t>::max();
      return Value(static_cast<std::int64_t>(std::clamp(whole(row), kLeast, kMost)));
    }
    case CellKind::kReal: return Value(reals[at(row)]);
    case CellKind::kText: return Value(text(row));
    case CellKind::kBytes: return Value(Bytes{std::string(text(row))});
    default: return {};
  }
}

Cells cells_of_type(CellType type, std::size_t rows) {
  Cells cells;
  cells.type = std::move(type);
  cells.valid.resize(rows);
  switch (cells.type.kind) {
    case CellKind::kBool:
    case CellKind::kWhole:
    case CellKind::kTime: cells.wholes.resize(rows); break;
    case CellKind::kReal: cells.reals.resize(rows); break;
    case CellKind::kText:
    case CellKind::kBytes: cells.texts.resize(rows); break;
    default: break;
  }
  return cells;
}

Cells constant_cells(const Value& value) {
  CellType type;
  if (value.get_if<bool>()) type.kind = CellKind::kBool;
  if (value.get_if<std::int64_t>()) type.kind = CellKind::kWhole;
  if (value.get_if<double>()) type.kind = CellKind::kReal;
  if (value.get_if<std::string>()) type.kind = CellKind::kText;
  if (value.get_if<Bytes>()) type.kind = CellKind::kBytes;
  Cells cells = cells_of_type(type, 1);
  cells.constant = true;
  cells.valid[0] = type.kind != CellKind::kNull;
  if (const auto* flag = value.get_if<bool>()) cells.wholes[0] = *flag ? 1 : 0;
  if (const auto* whole = value.get_if<std::int64_t>()) cells.wholes[0] = *whole;
  if (const auto* real = value.get_if<double>()) cells.reals[0] = *real;
  if (type.is_text()) {
    const auto* bytes = value.get_if<Bytes>();
    auto held = std::make_shared<const std::string>(bytes ? bytes->data : value.as_string());
    cells.texts[0] = *held;
    cells.owner = std::move(held);
  }
  return cells;
}

Cells cells_of(const data::Batch& batch, std::size_t column) {
  auto record = std::make_shared<Record>();
  batch.export_to(*record->array, *record->schema);
  const ArrowArray& array = *record->array->children[column];
  const auto& type = batch.schema()->fields()[column].type;
  Cells cells = cells_of_type(type_of(type), static_cast<std::size_t>(batch.rows()));
  if (cells.type.kind == CellKind::kNull) return cells;
  const auto* bits = static_cast<const std::byte*>(array.buffers[0]);
  for (std::size_t row = 0; row < cells.size(); ++row) {
    const std::int64_t index = static_cast<std::int64_t>(row) + array.offset + record->array->offset;
    cells.valid[row] = !bits || data::bit_at(bits, index);
    if (cells.valid[row]) read(cells, row, type.format, array, index);
  }
  cells.owner = std::move(record);
  return cells;
}

void to_arrow(const Cells& cells, std::size_t rows, const std::string& name, OwnedSchema& schema, OwnedArray& array) {
  const auto& type = cells.type;
  TRIREME_CHECK(type.kind != CellKind::kTime && type.kind != CellKind::kOther, "a column of {} cannot be made",
                type.text());
  schema = make_schema(format_of(type), name);
  auto validity = std::make_shared<std::vector<std::byte>>(rows / 8 + 1);
  std::int64_t nulls = 0;
  for (std::size_t row = 0; row < rows; ++row) {
    data::or_bit(validity->data(), static_cast<std::int64_t>(row), cells.is_valid(row));
    nulls += !cells.is_valid(row);
  }
  const auto whole = [&](std::size_t row) { return cells.whole(row); };
  switch (type.kind) {
    case CellKind::kNull:
      array = make_array(static_cast<std::int64_t>(rows), static_cast<std::int64_t>(rows), {}, {});
      return;
    case CellKind::kBool: {
      auto bits = std::make_shared<std::vector<std::byte>>(rows / 8 + 1);
      for (std::size_t row = 0; row < rows; ++row) {
        data::or_bit(bits->data(), static_cast<std::int64_t>(row), cells.whole(row) != 0);
      }
      array = make_array(static_cast<std::int64_t>(rows), nulls, {nulls ? validity->data() : nullptr, bits->data()},
                         {validity, bits});
      return;
    }
    case CellKind::kWhole:
      // Two's complement: signed and unsigned have the same bits.
      if (type.bits == 8) array = array_of<std::uint8_t>(rows, nulls, validity, whole);
      else if (type.bits == 16) array = array_of<std::uint16_t>(rows, nulls, validity, whole);
      else if (type.bits == 32) array = array_of<std::uint32_t>(rows, nulls, validity, whole);
      else array = array_of<std::uint64_t>(rows, nulls, validity, whole);
      return;
    case CellKind::kReal: {
      const auto real = [&](std::size_t row) { return cells.real(row); };
      array = type.bits == 64 ? array_of<double>(rows, nulls, validity, real)
                              : array_of<float>(rows, nulls, validity, real);
      return;
    }
    default: break;
  }
  auto offsets = std::make_shared<std::vector<std::int64_t>>(1);
  auto bytes = std::make_shared<std::string>();
  for (std::size_t row = 0; row < rows; ++row) {
    if (cells.is_valid(row)) bytes->append(cells.text(row));
    offsets->push_back(static_cast<std::int64_t>(bytes->size()));
  }
  array = make_array(static_cast<std::int64_t>(rows), nulls,
                     {nulls ? validity->data() : nullptr, offsets->data(), bytes->data()}, {validity, offsets, bytes});
}

}  // namespace trireme::plan
