#include "boosting/column_reader.h"

#include <bit>
#include <limits>
#include <stdexcept>

#include "boosting/decimal_reader.h"

namespace trireme::boosting {
namespace {

// The letter of a format of one letter; '?' for other formats.
char letter_of(const ColumnView& column) { return column.format[1] == 0 ? column.format[0] : '?'; }

[[noreturn]] void refuse_type(const ColumnView& column, const char* expected) {
  throw std::runtime_error(std::string("column \"") + column.name + "\" is not " + expected + " (Arrow format " +
                           column.format + ")");
}

template <typename From, typename To>
void copy_numbers(const ColumnView& column, To* out, std::size_t stride) {
  const From* values = static_cast<const From*>(column.buffers[1]) + column.first;
  for (std::int64_t row = 0; row < column.rows; ++row) {
    out[static_cast<std::size_t>(row) * stride] = static_cast<To>(values[row]);
  }
}

// A float of 16 bits.
float half_of(std::uint16_t bits) {
  const std::uint32_t sign = std::uint32_t{bits & 0x8000U} << 16, exponent = bits >> 10 & 31, fraction = bits & 0x3ff;
  if (exponent == 0) {  // of zero and the numbers below the normal ones
    const float value = static_cast<float>(fraction) * 0x1p-24F;
    return sign != 0 ? -value : value;
  }
  const std::uint32_t wide = exponent == 31 ? 255 : exponent + 127 - 15;
  return std::bit_cast<float>(sign | wide << 23 | fraction << 13);
}

// `value`: of a row.
template <typename To, typename F>
void copy_each(const ColumnView& column, To* out, std::size_t stride, F value) {
  for (std::int64_t row = 0; row < column.rows; ++row) {
    out[static_cast<std::size_t>(row) * stride] = static_cast<To>(value(column.first + row));
  }
}

template <typename To>
void copy_others(const ColumnView& column, To* out, std::size_t stride) {
  if (letter_of(column) == 'b') {
    const auto* bits = static_cast<const std::uint8_t*>(column.buffers[1]);
    copy_each(column, out, stride, [bits](std::int64_t at) { return (bits[at / 8] >> (at % 8)) & 1; });
  } else if (letter_of(column) == 'e') {
    const auto* values = static_cast<const std::uint16_t*>(column.buffers[1]);
    copy_each(column, out, stride, [values](std::int64_t at) { return half_of(values[at]); });
  } else if (DecimalReader::reads(column.format)) {
    const DecimalReader decimals(column.format);
    const void* values = column.buffers[1];
    copy_each(column, out, stride, [&](std::int64_t at) { return decimals.read(values, at); });
  } else {
    refuse_type(column, "numeric");
  }
}

template <typename To>
void copy_column(const ColumnView& column, To* out, std::size_t stride) {
  switch (letter_of(column)) {
    case 'c': copy_numbers<std::int8_t>(column, out, stride); break;
    case 'C': copy_numbers<std::uint8_t>(column, out, stride); break;
    case 's': copy_numbers<std::int16_t>(column, out, stride); break;
    case 'S': copy_numbers<std::uint16_t>(column, out, stride); break;
    case 'i': copy_numbers<std::int32_t>(column, out, stride); break;
    case 'I': copy_numbers<std::uint32_t>(column, out, stride); break;
    case 'l': copy_numbers<std::int64_t>(column, out, stride); break;
    case 'L': copy_numbers<std::uint64_t>(column, out, stride); break;
    case 'f': copy_numbers<float>(column, out, stride); break;
    case 'g': copy_numbers<double>(column, out, stride); break;
    default: copy_others(column, out, stride);
  }
  if (column.validity == nullptr) return;
  for (std::int64_t row = 0; row < column.rows; ++row) {
    if (column.is_null(row)) out[static_cast<std::size_t>(row) * stride] = std::numeric_limits<To>::quiet_NaN();
  }
}

using Function = std::function<void(std::int64_t, const ExportedBatch::Key&)>;

template <typename T>
void each_integer(const ColumnView& column, const Function& function) {
  const T* values = static_cast<const T*>(column.buffers[1]) + column.first;
  for (std::int64_t row = 0; row < column.rows; ++row) {
    if (column.is_null(row)) {
      function(row, std::monostate());
    } else {
      function(row, static_cast<std::int64_t>(values[row]));
    }
  }
}

template <typename Offset>
void each_string(const ColumnView& column, const Function& function) {
  const Offset* offsets = static_cast<const Offset*>(column.buffers[1]) + column.first;
  const char* bytes = static_cast<const char*>(column.buffers[2]);
  for (std::int64_t row = 0; row < column.rows; ++row) {
    if (column.is_null(row)) {
      function(row, std::monostate());
    } else {
      function(row, std::string_view(bytes + offsets[row], static_cast<std::size_t>(offsets[row + 1] - offsets[row])));
    }
  }
}

}  // namespace

ExportedBatch::ExportedBatch(const Batch& batch) { batch.export_to(&array_, &schema_); }

ExportedBatch::~ExportedBatch() {
  array_.release(&array_);
  schema_.release(&schema_);
}

ColumnView ExportedBatch::column(const std::string& name) const {
  for (std::int64_t index = 0; index < schema_.n_children; ++index) {
    if (name != schema_.children[index]->name) continue;
    const ArrowArray& column = *array_.children[index];
    const void* validity = column.null_count == 0 ? nullptr : column.buffers[0];
    return {schema_.children[index]->name,
            schema_.children[index]->format,
            column.buffers,
            array_.offset + column.offset,
            array_.length,
            static_cast<const std::uint8_t*>(validity)};
  }
  throw std::runtime_error("a batch has no column \"" + name + "\"");
}

void ExportedBatch::read_keys(const std::string& name, const Function& function) const {
  const ColumnView view = column(name);
  switch (letter_of(view)) {
    case 'c': return each_integer<std::int8_t>(view, function);
    case 'C': return each_integer<std::uint8_t>(view, function);
    case 's': return each_integer<std::int16_t>(view, function);
    case 'S': return each_integer<std::uint16_t>(view, function);
    case 'i': return each_integer<std::int32_t>(view, function);
    case 'I': return each_integer<std::uint32_t>(view, function);
    case 'l': return each_integer<std::int64_t>(view, function);
    case 'u': return each_string<std::int32_t>(view, function);
    case 'U': return each_string<std::int64_t>(view, function);
    default: refuse_type(view, "of strings or integers");
  }
}

std::size_t width_of(const ColumnView& column) {
  switch (letter_of(column)) {
    case 'c':
    case 'C': return 1;
    case 's':
    case 'S': return 2;
    case 'i':
    case 'I':
    case 'f': return 4;
    case 'l':
    case 'L':
    case 'g': return 8;
    default: return 0;
  }
}

void read_numbers(const ColumnView& column, float* out, std::size_t stride) { copy_column(column, out, stride); }

void read_numbers(const ColumnView& column, double* out, std::size_t stride) { copy_column(column, out, stride); }

}  // namespace trireme::boosting
