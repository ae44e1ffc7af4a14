#include "boosting/column_reader.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <stdexcept>

namespace trireme::boosting {
namespace {

constexpr std::int64_t kBlockRows = 512;

bool bit(const void* bits, std::int64_t at) { return (static_cast<const std::uint8_t*>(bits)[at / 8] >> (at % 8)) & 1; }

// A column of a record batch: the batch's own offset applies to it too.
struct ColumnView {
  const ArrowArray& array;
  std::int64_t first;
  std::int64_t rows;
  const void* validity;  // nullptr: no nulls

  bool is_null(std::int64_t row) const { return validity != nullptr && !bit(validity, first + row); }
};

template <typename From, typename To>
void copy_numbers(const ColumnView& view, To* out, std::size_t stride) {
  const From* values = static_cast<const From*>(view.array.buffers[1]) + view.first;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    out[static_cast<std::size_t>(row) * stride] = static_cast<To>(values[row]);
  }
}

template <typename To>
void copy_bits(const ColumnView& view, To* out, std::size_t stride) {
  for (std::int64_t row = 0; row < view.rows; ++row) {
    out[static_cast<std::size_t>(row) * stride] = bit(view.array.buffers[1], view.first + row) ? To(1) : To(0);
  }
}

[[noreturn]] void refuse_type(const ArrowSchema& field, const char* expected) {
  throw std::runtime_error(std::string("column \"") + field.name + "\" is not " + expected + " (Arrow format " +
                           field.format + ")");
}

template <typename To>
void copy_column(const ArrowSchema& field, const ColumnView& view, To* out, std::size_t stride) {
  switch (field.format[1] == 0 ? field.format[0] : '?') {
    case 'b': copy_bits(view, out, stride); break;
    case 'c': copy_numbers<std::int8_t>(view, out, stride); break;
    case 'C': copy_numbers<std::uint8_t>(view, out, stride); break;
    case 's': copy_numbers<std::int16_t>(view, out, stride); break;
    case 'S': copy_numbers<std::uint16_t>(view, out, stride); break;
    case 'i': copy_numbers<std::int32_t>(view, out, stride); break;
    case 'I': copy_numbers<std::uint32_t>(view, out, stride); break;
    case 'l': copy_numbers<std::int64_t>(view, out, stride); break;
    case 'L': copy_numbers<std::uint64_t>(view, out, stride); break;
    case 'f': copy_numbers<float>(view, out, stride); break;
    case 'g': copy_numbers<double>(view, out, stride); break;
    default: refuse_type(field, "numeric");
  }
  if (view.validity == nullptr) return;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    if (view.is_null(row)) out[static_cast<std::size_t>(row) * stride] = std::numeric_limits<To>::quiet_NaN();
  }
}

using Function = std::function<void(std::int64_t, const ExportedBatch::Key&)>;

template <typename T>
void each_integer(const ColumnView& view, const Function& function) {
  const T* values = static_cast<const T*>(view.array.buffers[1]) + view.first;
  for (std::int64_t row = 0; row < view.rows; ++row) {
    if (view.is_null(row)) {
      function(row, std::monostate());
    } else {
      function(row, static_cast<std::int64_t>(values[row]));
    }
  }
}

template <typename Offset>
void each_string(const ColumnView& view, const Function& function) {
  const Offset* offsets = static_cast<const Offset*>(view.array.buffers[1]) + view.first;
  const char* bytes = static_cast<const char*>(view.array.buffers[2]);
  for (std::int64_t row = 0; row < view.rows; ++row) {
    if (view.is_null(row)) {
      function(row, std::monostate());
    } else {
      function(row, std::string_view(bytes + offsets[row], static_cast<std::size_t>(offsets[row + 1] - offsets[row])));
    }
  }
}

ColumnView view_of(const ArrowArray& batch, std::int64_t index) {
  const ArrowArray& column = *batch.children[index];
  return {column, batch.offset + column.offset, batch.length, column.null_count == 0 ? nullptr : column.buffers[0]};
}

}  // namespace

ExportedBatch::ExportedBatch(const Batch& batch) { batch.export_to(&array_, &schema_); }

ExportedBatch::~ExportedBatch() {
  array_.release(&array_);
  schema_.release(&schema_);
}

std::int64_t ExportedBatch::index_of(const std::string& column) const {
  for (std::int64_t index = 0; index < schema_.n_children; ++index) {
    if (column == schema_.children[index]->name) return index;
  }
  throw std::runtime_error("a batch has no column \"" + column + "\"");
}

void ExportedBatch::read_numbers(const std::string& column, float* out) const {
  const std::int64_t index = index_of(column);
  copy_column(*schema_.children[index], view_of(array_, index), out, 1);
}

void ExportedBatch::read_matrix(const Places& columns, double* out, std::size_t width) const {
  std::vector<std::int64_t> indices;
  for (const auto& [name, place] : columns) indices.push_back(index_of(name));
  // A few rows of all columns at a time: they stay in the cache.
  for (std::int64_t row = 0; row < rows(); row += kBlockRows) {
    for (std::size_t each = 0; each < columns.size(); ++each) {
      ColumnView view = view_of(array_, indices[each]);
      view.first += row;
      view.rows = std::min(kBlockRows, rows() - row);
      double* const block = out + static_cast<std::size_t>(row) * width + columns[each].second;
      copy_column(*schema_.children[indices[each]], view, block, width);
    }
  }
}

void ExportedBatch::read_keys(const std::string& column, const Function& function) const {
  const std::int64_t index = index_of(column);
  const ArrowSchema& field = *schema_.children[index];
  const ColumnView view = view_of(array_, index);
  switch (field.format[1] == 0 ? field.format[0] : '?') {
    case 'c': return each_integer<std::int8_t>(view, function);
    case 'C': return each_integer<std::uint8_t>(view, function);
    case 's': return each_integer<std::int16_t>(view, function);
    case 'S': return each_integer<std::uint16_t>(view, function);
    case 'i': return each_integer<std::int32_t>(view, function);
    case 'I': return each_integer<std::uint32_t>(view, function);
    case 'l': return each_integer<std::int64_t>(view, function);
    case 'u': return each_string<std::int32_t>(view, function);
    case 'U': return each_string<std::int64_t>(view, function);
    default: refuse_type(field, "of strings or integers");
  }
}

}  // namespace trireme::boosting
