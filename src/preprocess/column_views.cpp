#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "data/array_values.h"
#include "data/bits.h"
#include "data/unaligned.h"
#include "preprocess/columns.h"
#include "preprocess/decimals.h"

namespace trireme::preprocess {
namespace {

using data::load;

constexpr double kNaN = std::numeric_limits<double>::quiet_NaN();

template <typename T>
void copy_numbers(const ArrowArray& array, std::vector<double>& to) {
  for (std::size_t i = 0; i < to.size(); ++i)
    to[i] = static_cast<double>(load<T>(array.buffers[1], array.offset + static_cast<std::int64_t>(i)));
}

// The loops of the common types are simple enough for the compiler to vectorize.
void copy_numbers(const Column& column, std::vector<double>& to) {
  const ArrowArray& array = *column.array;
  switch (column.format()[0]) {
    case 'g': return copy_numbers<double>(array, to);
    case 'f': return copy_numbers<float>(array, to);
    case 'l': return copy_numbers<std::int64_t>(array, to);
    case 'L': return copy_numbers<std::uint64_t>(array, to);
    case 'i': return copy_numbers<std::int32_t>(array, to);
    case 'C': return copy_numbers<std::uint8_t>(array, to);
    default:
      for (std::size_t i = 0; i < to.size(); ++i)
        to[i] = number_at(*column.schema, array, static_cast<std::int64_t>(i));
  }
}

}  // namespace

bool is_whole(std::string_view format) {
  return format.size() == 1 && std::string_view("cCsSiIlL").find(format[0]) != std::string_view::npos;
}
bool is_floating(std::string_view format) { return format == "e" || format == "f" || format == "g"; }
bool is_number(std::string_view format) { return format == "b" || is_whole(format) || is_floating(format); }
bool is_text(std::string_view format) { return format == "u" || format == "U"; }
bool is_bytes(std::string_view format) { return format == "z" || format == "Z"; }
bool is_list(std::string_view format) { return format == "+l" || format == "+L" || format.starts_with("+w:"); }

bool null_at(const ArrowArray& array, std::int64_t index) {
  if (array.n_buffers == 0) return true;
  if (array.null_count == 0 || !array.buffers[0]) return false;
  const std::int64_t row = index + array.offset;
  return (static_cast<const std::uint8_t*>(array.buffers[0])[row / 8] >> (row % 8) & 1) == 0;
}

bool any_null(const ArrowArray& array, std::int64_t first, std::int64_t count) {
  if (array.n_buffers == 0) return count > 0;
  if (array.null_count == 0 || !array.buffers[0]) return false;
  const auto* valid = static_cast<const std::byte*>(array.buffers[0]);
  return data::count_bits(valid, array.offset + first, count) < count;
}

bool missing_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  return null_at(array, index) || (is_floating(type.format) && std::isnan(number_at(type, array, index)));
}

bool has_missing(const Column& column) {
  if (!is_floating(column.format())) return any_null(*column.array, 0, column.rows());
  for (std::int64_t i = 0; i < column.rows(); ++i) {
    if (missing_at(*column.schema, *column.array, i)) return true;
  }
  return false;
}

double number_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  switch (type.format[0]) {
    case 'e': return data::half_at(array, row);
    case 'f': return load<float>(array.buffers[1], row);
    case 'g': return load<double>(array.buffers[1], row);
    case 'L': return static_cast<double>(load<std::uint64_t>(array.buffers[1], row));
    case 'd': return decimal_number(type, array, index);
    default: return static_cast<double>(whole_at(type, array, index));
  }
}

std::int64_t whole_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  const void* values = array.buffers[1];
  switch (type.format[0]) {
    case 'b': return load<std::uint8_t>(values, row / 8) >> (row % 8) & 1;
    case 'c': return load<std::int8_t>(values, row);
    case 'C': return load<std::uint8_t>(values, row);
    case 's': return load<std::int16_t>(values, row);
    case 'S': return load<std::uint16_t>(values, row);
    case 'i': return load<std::int32_t>(values, row);
    case 'I': return load<std::uint32_t>(values, row);
    case 'L': return static_cast<std::int64_t>(load<std::uint64_t>(values, row));
    default: return load<std::int64_t>(values, row);
  }
}

std::string_view text_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  const bool narrow = type.format[0] == 'u' || type.format[0] == 'z';
  const auto offset = [&](std::int64_t at) -> std::int64_t {
    return narrow ? load<std::int32_t>(array.buffers[1], at) : load<std::int64_t>(array.buffers[1], at);
  };
  const std::int64_t begin = offset(row);
  const std::int64_t end = offset(row + 1);
  if (begin == end) return {};
  return {static_cast<const char*>(array.buffers[2]) + begin, static_cast<std::size_t>(end - begin)};
}

Inside list_at(const ArrowSchema& type, const ArrowArray& array, std::int64_t index) {
  const std::int64_t row = index + array.offset;
  Inside inside{type.children[0], array.children[0], 0, 0};
  if (type.format[1] == 'w') {
    inside.count = std::atoll(type.format + 3);
    inside.first = row * inside.count;
    return inside;
  }
  const auto offset = [&](std::int64_t at) -> std::int64_t {
    return type.format[1] == 'l' ? load<std::int32_t>(array.buffers[1], at) : load<std::int64_t>(array.buffers[1], at);
  };
  inside.first = offset(row);
  inside.count = offset(row + 1) - inside.first;
  return inside;
}

base::Result<const Column*> numeric(const Table& table, const std::string& name, std::string_view who) {
  TRIREME_ASSIGN(const Column* column, table.find(name, who));
  const auto format = column->format();
  if (is_number(format) || format == "n" || is_decimal(format)) return column;
  return base::error(
      "{}: column '{}' is {}, expected numbers: remove it from the columns, or convert it to numbers first "
      "(OrdinalEncoder, OneHotEncoder, map_batches)",
      who, name, column->type());
}

std::vector<double> floats_of(const Column& column) {
  std::vector<double> values(static_cast<std::size_t>(column.rows()), kNaN);
  if (column.format() == "n") return values;
  copy_numbers(column, values);
  if (!column.array->buffers[0] || column.array->null_count == 0) return values;
  const auto* valid = static_cast<const std::byte*>(column.array->buffers[0]);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!data::bit_at(valid, column.array->offset + static_cast<std::int64_t>(i))) values[i] = kNaN;
  }
  return values;
}

base::Result<const Column*> without_nulls(const Table& table, const std::string& name, std::string_view who) {
  TRIREME_ASSIGN(const Column* column, table.find(name, who));
  if (has_missing(*column)) return nulls_in(name, who);
  return column;
}

base::Error nulls_in(const std::string& name, std::string_view who) {
  return base::error("{}: column '{}' has nulls: fill them first (SimpleImputer), or filter their rows out", who, name);
}

}  // namespace trireme::preprocess
