#include "data/packed_rows.h"

#include <algorithm>

#include "data/bits.h"
#include "data/unaligned.h"

namespace trireme::data {
namespace {

using Mask = std::uint64_t;

constexpr std::size_t kMostColumns = 64;
// Larger rows span several cache lines in any layout.
constexpr std::int64_t kMostRowBytes = 512;
// Number of rows per block: they stay in the L1 cache while the columns are processed one after the other.
constexpr std::int64_t kPacked = 256;
constexpr std::size_t kUnpacked = 64;
constexpr std::int64_t kCacheLine = 64;

bool small_number(const Type& type) {
  return type.kind == Kind::kFixed && !type.dictionary &&
         (type.width == 1 || type.width == 2 || type.width == 4 || type.width == 8);
}

template <typename Function>
void with_word(std::int64_t width, Function function) {
  if (width == 1) return function(std::uint8_t{});
  if (width == 2) return function(std::uint16_t{});
  if (width == 4) return function(std::uint32_t{});
  return function(std::uint64_t{});
}

template <typename T>
void store(std::byte* to, T value) {
  std::memcpy(to, &value, sizeof value);
}

// Prefetch.
void bring_near(std::span<const std::byte* const> rows, std::int64_t row_bytes) {
  for (const std::byte* row : rows) {
    for (std::int64_t at = 0; at < row_bytes; at += kCacheLine) __builtin_prefetch(row + at);
    __builtin_prefetch(row + row_bytes - 1);
  }
}

void mark_nulls(Array& column, std::size_t bit, std::span<const std::byte* const> rows) {
  column.validity = Buffer::zeroed((column.length + 7) / 8);
  for (std::int64_t i = 0; i < column.length; ++i) {
    const bool valid = load<Mask>(rows[static_cast<std::size_t>(i)], 0) >> bit & 1;
    or_bit(column.validity.data(), i, valid);
    column.null_count += valid ? 0 : 1;
  }
}

bool has_nulls(const ArrowArray& column) { return column.null_count != 0 && column.buffers[0]; }

}  // namespace

std::optional<RowLayout> RowLayout::of(const Schema& schema) {
  const auto& fields = schema.fields();
  const bool fits =
      std::all_of(fields.begin(), fields.end(), [](const Field& each) { return small_number(each.type); });
  if (!fits || fields.size() < 2 || fields.size() > kMostColumns) return {};
  RowLayout layout;
  layout.row_bytes = sizeof(Mask);
  for (const Field& field : fields) {
    const std::int64_t width = field.type.width;
    const std::int64_t offset = (layout.row_bytes + width - 1) / width * width;
    layout.offsets.push_back(offset);
    layout.row_bytes = offset + width;
  }
  layout.row_bytes = (layout.row_bytes + 7) / 8 * 8;
  if (layout.row_bytes > kMostRowBytes) return {};
  return layout;
}

PackedRows::PackedRows(const Chunk& chunk, std::int64_t row, std::int64_t count, RowLayout layout)
    : layout_(std::move(layout)), rows_(count), memory_(Buffer::of(count * layout_.row_bytes)) {
  const auto& fields = chunk.schema()->fields();
  const std::int64_t bytes = layout_.row_bytes;
  const Mask all = fields.size() == kMostColumns ? ~Mask{0} : (Mask{1} << fields.size()) - 1;
  for (std::int64_t begin = 0; begin < count; begin += kPacked) {
    const std::int64_t rows = std::min(kPacked, count - begin);
    std::byte* const block = memory_.data() + begin * bytes;
    for (std::int64_t i = 0; i < rows; ++i) store(block + i * bytes, all);
    for (std::size_t c = 0; c < fields.size(); ++c) {
      const ArrowArray& column = chunk.column(c);
      const std::int64_t first = column.offset + chunk.row_offset() + row + begin;
      std::byte* const to = block + layout_.offsets[c];
      with_word(fields[c].type.width, [&](auto word) {
        using Word = decltype(word);
        for (std::int64_t i = 0; i < rows; ++i) store(to + i * bytes, load<Word>(column.buffers[1], first + i));
      });
      if (!has_nulls(column)) continue;
      const auto* validity = static_cast<const std::byte*>(column.buffers[0]);
      for (std::int64_t i = 0; i < rows; ++i) {
        if (bit_at(validity, first + i)) continue;
        store(block + i * bytes, load<Mask>(block + i * bytes, 0) & ~(Mask{1} << c));
      }
    }
  }
}

std::vector<Array> unpack(const Schema& schema, const RowLayout& layout, std::span<const std::byte* const> rows) {
  const auto& fields = schema.fields();
  std::vector<Array> columns(fields.size());
  for (std::size_t c = 0; c < fields.size(); ++c) {
    columns[c].length = static_cast<std::int64_t>(rows.size());
    columns[c].values = Buffer::of(columns[c].length * fields[c].type.width);
  }
  Mask present = ~Mask{0};
  bring_near(rows.first(std::min(rows.size(), kUnpacked)), layout.row_bytes);
  for (std::size_t begin = 0; begin < rows.size(); begin += kUnpacked) {
    const auto block = rows.subspan(begin, std::min(kUnpacked, rows.size() - begin));
    const auto after = rows.subspan(begin + block.size());
    bring_near(after.first(std::min(after.size(), kUnpacked)), layout.row_bytes);
    for (const std::byte* row : block) present &= load<Mask>(row, 0);
    for (std::size_t c = 0; c < fields.size(); ++c) {
      const std::int64_t offset = layout.offsets[c];
      with_word(fields[c].type.width, [&](auto word) {
        using Word = decltype(word);
        std::byte* to = columns[c].values.data() + begin * sizeof(Word);
        for (std::size_t i = 0; i < block.size(); ++i) {
          store(to + i * sizeof(Word), load<Word>(block[i] + offset, 0));
        }
      });
    }
  }
  for (std::size_t c = 0; c < fields.size(); ++c) {
    if (!(present >> c & 1)) mark_nulls(columns[c], c, rows);
  }
  return columns;
}

}  // namespace trireme::data
