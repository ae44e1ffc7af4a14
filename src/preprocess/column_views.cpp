#include <algorithm>
#include <cmath>
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
  return is_decimal(type.format) ? decimal_number(type, array, index) : data::number_at(type, array, index);
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
