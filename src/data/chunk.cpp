#include "data/chunk.h"

#include <fmt/format.h>

#include <limits>
#include <string_view>

#include "base/text.h"
#include "data/bits.h"
#include "data/packed_rows.h"
#include "data/type_format.h"
#include "data/unaligned.h"

namespace trireme::data {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int64_t>::max();

const std::byte* buffer(const ArrowArray& array, std::size_t index) {
  return static_cast<const std::byte*>(array.buffers[index]);
}

std::int64_t end_of(const ArrowArray& array) { return array.offset + array.length; }

base::Error broken(std::string_view what) { return base::error("invalid array: {}", what); }

base::Result<void> check_extent(const ArrowArray& array) {
  if (array.length < 0 || array.offset < 0 || array.length > kMost - 1 - array.offset) {
    return broken(fmt::format("length {}, offset {}", array.length, array.offset));
  }
  if (array.null_count < -1 || array.null_count > array.length) {
    return broken(fmt::format("{} nulls in {} rows", array.null_count, array.length));
  }
  return {};
}

base::Result<void> check_buffers(const ArrowArray& array, std::int64_t expected) {
  if (array.n_buffers < expected || (array.n_buffers > 0 && !array.buffers)) {
    return broken(fmt::format("{} buffers, expected {}", array.n_buffers, expected));
  }
  if (expected > 0 && array.null_count > 0 && !array.buffers[0]) {
    return broken(fmt::format("{} nulls, but no validity bitmap", array.null_count));
  }
  return {};
}

base::Result<void> check_children(const ArrowArray& array, std::size_t expected) {
  if (array.n_children != static_cast<std::int64_t>(expected) || (expected > 0 && !array.children)) {
    return broken(fmt::format("{} children, expected {}", array.n_children, expected));
  }
  for (std::size_t i = 0; i < expected; ++i) {
    if (!array.children[i]) return broken(fmt::format("child {} is missing", i));
  }
  return {};
}

// The number of items up to the end of the last row.
template <typename Offset>
base::Result<std::int64_t> check_offsets(const ArrowArray& array) {
  const std::byte* offsets = buffer(array, 1);
  // An array without rows may have no offsets.
  if (end_of(array) == 0) return 0;
  if (!offsets) return broken("it has no offsets");
  Offset last = load<Offset>(offsets, array.offset);
  bool ordered = last >= 0;
  for (std::int64_t i = array.offset + 1; i <= end_of(array); ++i) {
    const Offset next = load<Offset>(offsets, i);
    ordered = ordered & (last <= next);
    last = next;
  }
  if (!ordered) return broken("its offsets are not in order");
  return last;
}

template <typename Index>
base::Result<void> check_indices(const ArrowArray& array) {
  const std::byte* validity = array.null_count == 0 ? nullptr : buffer(array, 0);
  const std::byte* indices = buffer(array, 1);
  if (end_of(array) > 0 && !indices) return broken("it has no indices");
  const auto values = static_cast<std::uint64_t>(array.dictionary->length);
  for (std::int64_t i = array.offset; i < end_of(array); ++i) {
    const auto index = load<Index>(indices, i);
    // As unsigned, a negative index is larger than every length.
    if (static_cast<std::uint64_t>(index) >= values && (!validity || bit_at(validity, i))) {
      return broken(fmt::format("index {} into a dictionary of {}", index, base::count_of(values, "value")));
    }
  }
  return {};
}

base::Result<void> check(const Type& type, const ArrowArray& array);
base::Result<void> check_values(const Type& type, const ArrowArray& array);

base::Result<void> check_dictionary(const Type& type, const ArrowArray& array) {
  TRIREME_TRY(check_buffers(array, 2));
  if (!array.dictionary) return broken("it has no dictionary");
  TRIREME_TRY(check_extent(*array.dictionary));
  TRIREME_TRY(check_values(type, *array.dictionary));
  return with_index_type(type, [&](auto index) { return check_indices<decltype(index)>(array); });
}

base::Result<void> check_data(const Type& type, const ArrowArray& array) {
  std::int64_t bytes = 0;
  if (type.kind == Kind::kFixed && __builtin_mul_overflow(end_of(array), type.width, &bytes)) {
    return broken(fmt::format("{} rows", end_of(array)));
  }
  const bool needed = end_of(array) > 0 && (type.kind == Kind::kBool || type.width > 0);
  if (needed && !buffer(array, 1)) return broken("it has no values");
  return {};
}

base::Result<void> check_items(const Type& type, const ArrowArray& array) {
  std::int64_t items = 0;
  if (type.kind == Kind::kStruct) {
    items = end_of(array);
  } else if (type.kind == Kind::kList) {
    TRIREME_ASSIGN(items, with_offset_type(type, [&](auto offset) { return check_offsets<decltype(offset)>(array); }));
  } else if (__builtin_mul_overflow(end_of(array), type.length, &items)) {
    return broken(fmt::format("{} rows of {} items", end_of(array), type.length));
  }
  for (std::size_t i = 0; i < type.children.size(); ++i) {
    const ArrowArray& child = *array.children[i];
    TRIREME_TRY(check(type.children[i], child));
    if (child.length < items) return broken(fmt::format("{} items, expected {}", child.length, items));
  }
  return {};
}

base::Result<void> check_values(const Type& type, const ArrowArray& array) {
  TRIREME_TRY(check_buffers(array, buffer_count(type.kind)));
  TRIREME_TRY(check_children(array, type.children.size()));
  switch (type.kind) {
    case Kind::kNull: return {};
    case Kind::kBool:
    case Kind::kFixed: return check_data(type, array);
    case Kind::kText: {
      TRIREME_ASSIGN(const std::int64_t bytes,
                     with_offset_type(type, [&](auto offset) { return check_offsets<decltype(offset)>(array); }));
      if (bytes > 0 && !buffer(array, 2)) return broken("it has offsets but no text");
      return {};
    }
    case Kind::kFixedList:
    case Kind::kList:
    case Kind::kStruct: break;
  }
  return check_items(type, array);
}

base::Result<void> check(const Type& type, const ArrowArray& array) {
  TRIREME_TRY(check_extent(array));
  return type.dictionary ? check_dictionary(type, array) : check_values(type, array);
}

std::int64_t bytes_of(const Type& type, const ArrowArray& array, std::int64_t row, std::int64_t rows, bool values);

// The offsets and the data they point to.
template <typename Offset>
std::int64_t bytes_of_items(const Type& type, const ArrowArray& array, std::int64_t row, std::int64_t rows) {
  if (rows == 0) return 0;
  const auto begin = static_cast<std::int64_t>(load<Offset>(buffer(array, 1), array.offset + row));
  const auto end = static_cast<std::int64_t>(load<Offset>(buffer(array, 1), array.offset + row + rows));
  const std::int64_t items = type.kind == Kind::kText
                                 ? end - begin
                                 : bytes_of(type.children[0], *array.children[0], begin, end - begin, false);
  return items + (rows + 1) * static_cast<std::int64_t>(sizeof(Offset));
}

// `values`: the array itself is a dictionary.
std::int64_t bytes_of(const Type& type, const ArrowArray& array, std::int64_t row, std::int64_t rows, bool values) {
  std::int64_t sum = array.n_buffers > 0 && array.buffers[0] ? (rows + 7) / 8 : 0;
  if (type.dictionary && !values) {
    return sum + rows * index_width(type.index_format) +
           bytes_of(type, *array.dictionary, 0, array.dictionary->length, true);
  }
  switch (type.kind) {
    case Kind::kNull: return 0;
    case Kind::kBool: return sum + (rows + 7) / 8;
    case Kind::kFixed: return sum + rows * type.width;
    case Kind::kText:
    case Kind::kList:
      return sum + with_offset_type(
                       type, [&](auto offset) { return bytes_of_items<decltype(offset)>(type, array, row, rows); });
    case Kind::kFixedList:
      return sum + bytes_of(type.children[0], *array.children[0], (array.offset + row) * type.length,
                            rows * type.length, false);
    case Kind::kStruct: break;
  }
  for (std::size_t i = 0; i < type.children.size(); ++i) {
    sum += bytes_of(type.children[i], *array.children[i], array.offset + row, rows, false);
  }
  return sum;
}

base::Result<void> check_rows(const ArrowArray& table) {
  TRIREME_TRY(check_extent(table));
  TRIREME_TRY(check_buffers(table, 1));
  if (table.null_count == 0 || !table.buffers[0]) return {};
  const std::int64_t nulls = table.length - count_bits(buffer(table, 0), table.offset, table.length);
  if (nulls > 0) return base::error("{} of its {} rows are null", nulls, table.length);
  return {};
}

}  // namespace

base::Result<std::shared_ptr<const Chunk>> Chunk::take(OwnedArray array, std::shared_ptr<const Schema> schema) {
  if (!array->release) return base::error("a record batch was released before it was read");
  const std::shared_ptr<Chunk> taken(new Chunk);
  taken->array_ = std::move(array);
  taken->schema_ = std::move(schema);
  const ArrowArray& table = *taken->array_;
  const auto& fields = taken->schema_->fields();
  TRIREME_TRY(check_rows(table), "a record batch could not be read");
  TRIREME_TRY(check_children(table, fields.size()), "a record batch could not be read");
  for (std::size_t i = 0; i < fields.size(); ++i) {
    const ArrowArray& column = *table.children[i];
    TRIREME_TRY(check(fields[i].type, column), "column '{}' ({})", fields[i].name, fields[i].type.text());
    if (column.length < end_of(table)) {
      return base::error("column '{}' has {}, but the record batch has {}", fields[i].name,
                         base::count_of(column.length, "row"), end_of(table));
    }
    taken->bytes_ += bytes_of(fields[i].type, column, table.offset, table.length, false);
  }
  return std::shared_ptr<const Chunk>(taken);
}

std::shared_ptr<const Chunk> Chunk::of(PackedRows packed, std::shared_ptr<const Schema> schema) {
  const std::shared_ptr<Chunk> made(new Chunk);
  made->schema_ = std::move(schema);
  made->array_->length = packed.rows();
  made->bytes_ = packed.bytes();
  made->packed_ = std::make_unique<const PackedRows>(std::move(packed));
  return made;
}

Chunk::~Chunk() = default;

}  // namespace trireme::data
