#include "data/column_gather.h"

#include <fmt/format.h>

#include <limits>
#include <vector>

#include "data/bits.h"
#include "data/unaligned.h"

namespace trireme::data {
namespace {

// A run without a source: the value of a null dictionary index.
constexpr std::int64_t kNullRow = -1;

using Sources = std::span<const ArrowArray* const>;
using Runs = std::span<const Run>;

base::Result<Array> gather_values(const Type& type, Sources sources, Runs runs, std::int64_t rows);

// The start of each source's buffer, `width` bytes per row.
std::vector<const std::byte*> starts(Sources sources, std::size_t index, std::int64_t width) {
  std::vector<const std::byte*> made;
  made.reserve(sources.size());
  for (const ArrowArray* source : sources) {
    const auto* start = static_cast<const std::byte*>(source->buffers[index]);
    made.push_back(start ? start + source->offset * width : nullptr);
  }
  return made;
}

// Null if a source has no nulls.
std::vector<const std::byte*> validities(Sources sources) {
  std::vector<const std::byte*> made;
  made.reserve(sources.size());
  for (const ArrowArray* source : sources) {
    made.push_back(source->null_count == 0 ? nullptr : static_cast<const std::byte*>(source->buffers[0]));
  }
  return made;
}

void gather_validity(Sources sources, Runs runs, Array& out) {
  const auto bitmaps = validities(sources);
  bool some = false;
  for (const std::byte* bitmap : bitmaps) some = some || bitmap;
  for (std::size_t i = 0; !some && i < runs.size(); ++i) some = runs[i].row == kNullRow;
  if (!some) return;
  Buffer bits = Buffer::zeroed((out.length + 7) / 8);
  std::int64_t at = 0;
  for (const Run& run : runs) {
    if (run.row != kNullRow) {
      if (const std::byte* bitmap = bitmaps[run.chunk]) {
        copy_bits(bitmap, sources[run.chunk]->offset + run.row, bits.data(), at, run.count);
      } else {
        set_bits(bits.data(), at, run.count);
      }
    }
    at += run.count;
  }
  out.null_count = out.length - count_bits(bits.data(), 0, out.length);
  if (out.null_count > 0) out.validity = std::move(bits);
}

Buffer gather_bits(Sources sources, Runs runs, std::int64_t rows) {
  const auto from = starts(sources, 1, 0);
  Buffer bits = Buffer::zeroed((rows + 7) / 8);
  std::int64_t at = 0;
  for (const Run& run : runs) {
    if (run.row != kNullRow) {
      copy_bits(from[run.chunk], sources[run.chunk]->offset + run.row, bits.data(), at, run.count);
    }
    at += run.count;
  }
  return bits;
}

// With a constant width the compiler emits one load and one store for single rows.
template <std::size_t kWidth>
void copy_rows(std::span<const std::byte* const> from, Runs runs, std::byte* to) {
  for (const Run& run : runs) {
    const std::size_t bytes = static_cast<std::size_t>(run.count) * kWidth;
    const std::int64_t skipped = run.row * static_cast<std::int64_t>(kWidth);
    if (run.row == kNullRow) {
      std::memset(to, 0, bytes);
    } else if (run.count == 1) {
      std::memcpy(to, from[run.chunk] + skipped, kWidth);
    } else {
      std::memcpy(to, from[run.chunk] + skipped, bytes);
    }
    to += bytes;
  }
}

void copy_rows(std::span<const std::byte* const> from, Runs runs, std::size_t width, std::byte* to) {
  for (const Run& run : runs) {
    const std::size_t bytes = static_cast<std::size_t>(run.count) * width;
    if (run.row == kNullRow) {
      std::memset(to, 0, bytes);
    } else {
      std::memcpy(to, from[run.chunk] + run.row * static_cast<std::int64_t>(width), bytes);
    }
    to += bytes;
  }
}

base::Result<Buffer> gather_fixed(std::int64_t width, Sources sources, Runs runs, std::int64_t rows) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(rows, width, &bytes)) return base::error("{} rows of {} bytes are too many", rows, width);
  Buffer made = Buffer::of(bytes);
  if (bytes == 0) return made;
  const auto from = starts(sources, 1, width);
  switch (width) {
    case 1: copy_rows<1>(from, runs, made.data()); break;
    case 2: copy_rows<2>(from, runs, made.data()); break;
    case 4: copy_rows<4>(from, runs, made.data()); break;
    case 8: copy_rows<8>(from, runs, made.data()); break;
    case 16: copy_rows<16>(from, runs, made.data()); break;
    default: copy_rows(from, runs, static_cast<std::size_t>(width), made.data());
  }
  return made;
}

// The contents of text or list rows: runs of bytes or items, and their total number.
struct Items {
  std::vector<Run> runs;
  std::int64_t count = 0;
};

base::Error too_many(const Type& type, std::int64_t most) {
  const std::string name = type.text();
  const std::string wider = fmt::format(", or cast it to large_{}", name.substr(0, name.find('<')));
  return base::error("a batch would have more than {} {} of {}; use smaller batches{}", most,
                     type.kind == Kind::kText ? "bytes" : "items", name, type.format == "+m" ? "" : wider);
}

template <typename Offset>
base::Result<Items> gather_offsets(const Type& type, Sources sources, Runs runs, Buffer& out) {
  const auto from = starts(sources, 1, sizeof(Offset));
  Items items;
  items.runs.reserve(runs.size());
  auto* to = reinterpret_cast<Offset*>(out.data());
  *to++ = 0;
  for (const Run& run : runs) {
    if (run.row == kNullRow) {
      for (std::int64_t i = 0; i < run.count; ++i) *to++ = static_cast<Offset>(items.count);
      continue;
    }
    const std::byte* offsets = from[run.chunk];
    const Offset begin = load<Offset>(offsets, run.row);
    const std::int64_t count = load<Offset>(offsets, run.row + run.count) - begin;
    if (count > std::numeric_limits<Offset>::max() - items.count) {
      return too_many(type, std::numeric_limits<Offset>::max());
    }
    const Offset shift = static_cast<Offset>(items.count - begin);
    for (std::int64_t i = 1; i <= run.count; ++i) *to++ = load<Offset>(offsets, run.row + i) + shift;
    items.count += count;
    if (count > 0) items.runs.push_back({run.chunk, begin, count});
  }
  return items;
}

std::vector<const ArrowArray*> children_of(Sources sources, std::size_t index) {
  std::vector<const ArrowArray*> made;
  made.reserve(sources.size());
  for (const ArrowArray* source : sources) made.push_back(source->children[index]);
  return made;
}

base::Result<void> gather_items(const Type& type, Sources sources, Runs runs, Array& out) {
  std::int64_t bytes = 0;
  if (__builtin_mul_overflow(out.length + 1, type.width, &bytes))
    return base::error("{} rows are too many", out.length);
  out.values = Buffer::of(bytes);
  TRIREME_ASSIGN(const Items items, with_offset_type(type, [&](auto offset) {
                   return gather_offsets<decltype(offset)>(type, sources, runs, out.values);
                 }));
  if (type.kind == Kind::kList) {
    TRIREME_ASSIGN(Array child, gather_column(type.children[0], children_of(sources, 0), items.runs, items.count));
    out.children.push_back(std::move(child));
    return {};
  }
  out.text = Buffer::of(items.count);
  // Offsets into text count from its start, independent of the array's own offset.
  copy_rows<1>(starts(sources, 2, 0), items.runs, out.text.data());
  return {};
}

// The runs of the rows' items, `length` per row, for children that do not share the sources' offsets.
std::vector<Run> runs_of_items(Sources sources, Runs runs, std::int64_t length) {
  std::vector<Run> made;
  made.reserve(runs.size());
  for (const Run& run : runs) {
    const bool null = run.row == kNullRow;
    const std::int64_t row = null ? kNullRow : (sources[run.chunk]->offset + run.row) * length;
    if (length > 0) made.push_back({run.chunk, row, run.count * length});
  }
  return made;
}

base::Result<void> gather_fixed_lists(const Type& type, Sources sources, Runs runs, Array& out) {
  std::int64_t items = 0;
  if (__builtin_mul_overflow(out.length, type.length, &items)) {
    return base::error("{} rows of {} are too many", out.length, type.text());
  }
  TRIREME_ASSIGN(Array child, gather_column(type.children[0], children_of(sources, 0),
                                            runs_of_items(sources, runs, type.length), items));
  out.children.push_back(std::move(child));
  return {};
}

base::Result<void> gather_struct(const Type& type, Sources sources, Runs runs, Array& out) {
  const auto inside = runs_of_items(sources, runs, 1);
  for (std::size_t i = 0; i < type.children.size(); ++i) {
    TRIREME_ASSIGN(Array child, gather_column(type.children[i], children_of(sources, i), inside, out.length));
    out.children.push_back(std::move(child));
  }
  return {};
}

// The runs of dictionary values that the indices refer to.
template <typename Index>
std::vector<Run> look_up(Sources sources, Runs runs, std::int64_t rows) {
  const auto bitmaps = validities(sources);
  const auto from = starts(sources, 1, sizeof(Index));
  std::vector<Run> made;
  made.reserve(static_cast<std::size_t>(rows));
  for (const Run& run : runs) {
    for (std::int64_t row = run.row; row < run.row + run.count; ++row) {
      const std::byte* bitmap = run.row == kNullRow ? nullptr : bitmaps[run.chunk];
      const bool null = run.row == kNullRow || (bitmap && !bit_at(bitmap, sources[run.chunk]->offset + row));
      const std::int64_t value = null ? kNullRow : static_cast<std::int64_t>(load<Index>(from[run.chunk], row));
      made.push_back({run.chunk, value, 1});
    }
  }
  return made;
}

base::Result<Array> gather_values(const Type& type, Sources sources, Runs runs, std::int64_t rows) {
  Array out;
  out.length = rows;
  if (type.kind == Kind::kNull) {
    out.null_count = rows;
    return out;
  }
  gather_validity(sources, runs, out);
  switch (type.kind) {
    case Kind::kNull: break;
    case Kind::kBool: out.values = gather_bits(sources, runs, rows); break;
    case Kind::kFixed: {
      TRIREME_ASSIGN(out.values, gather_fixed(type.width, sources, runs, rows));
      break;
    }
    case Kind::kText:
    case Kind::kList: TRIREME_TRY(gather_items(type, sources, runs, out)); break;
    case Kind::kFixedList: TRIREME_TRY(gather_fixed_lists(type, sources, runs, out)); break;
    case Kind::kStruct: TRIREME_TRY(gather_struct(type, sources, runs, out)); break;
  }
  return out;
}

}  // namespace

base::Result<Array> gather_column(const Type& type, Sources sources, Runs runs, std::int64_t rows) {
  if (!type.dictionary) return gather_values(type, sources, runs, rows);
  std::vector<const ArrowArray*> dictionaries;
  for (const ArrowArray* source : sources) dictionaries.push_back(source->dictionary);
  const auto values = with_index_type(type, [&](auto index) { return look_up<decltype(index)>(sources, runs, rows); });
  return gather_values(type, dictionaries, values, rows);
}

}  // namespace trireme::data
