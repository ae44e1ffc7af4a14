#pragma once

#include <algorithm>
#include <cerrno>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <limits>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "data/arrow_c.h"

// Tables for tests: columns as values, exported through Arrow's C interfaces.

namespace trireme::tests {

// Shared by its arrays: its use_count() shows whether they were released.
using ArrowBuffer = std::shared_ptr<std::vector<std::byte>>;

struct Column {
  std::string name;
  std::string format;
  std::int64_t length = 0;
  std::vector<ArrowBuffer> buffers;  // an empty one is a null pointer
  std::vector<Column> children = {};
  std::shared_ptr<Column> dictionary = {};  // shared by slices
  std::int64_t null_count = 0;
  std::int64_t offset = 0;
  std::string metadata = {};  // as Arrow encodes it
  std::int64_t flags = ARROW_FLAG_NULLABLE;
};

template <typename T>
using Optionals = std::vector<std::optional<T>>;

template <typename T>
ArrowBuffer buffer_of(const std::vector<T>& values) {
  auto made = std::make_shared<std::vector<std::byte>>(values.size() * sizeof(T));
  if (!values.empty()) std::memcpy(made->data(), values.data(), made->size());
  return made;
}

inline ArrowBuffer bits_of(const std::vector<bool>& values) {
  auto made = std::make_shared<std::vector<std::byte>>((values.size() + 7) / 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) (*made)[i / 8] |= std::byte{1} << (i % 8);
  }
  return made;
}

// Marks the rows that are not valid.
inline Column with_nulls(Column column, const std::vector<bool>& valid) {
  column.buffers.at(0) = bits_of(valid);
  column.null_count = 0;
  for (const bool is_valid : valid) column.null_count += is_valid ? 0 : 1;
  return column;
}

// For example {"ARROW:extension:name": "..."}.
inline std::string metadata_of(const std::vector<std::pair<std::string, std::string>>& pairs) {
  std::string made;
  const auto number = [&](std::size_t value) {
    const auto small = static_cast<std::int32_t>(value);
    made.append(reinterpret_cast<const char*>(&small), sizeof small);
  };
  number(pairs.size());
  for (const auto& [key, value] : pairs) {
    number(key.size());
    made += key;
    number(value.size());
    made += value;
  }
  return made;
}

template <typename T>
Column fixed_column(std::string name, std::string format, const std::vector<T>& values) {
  return {std::move(name), std::move(format), static_cast<std::int64_t>(values.size()), {nullptr, buffer_of(values)}};
}

inline Column int64_column(std::string name, const std::vector<std::int64_t>& values) {
  return fixed_column(std::move(name), "l", values);
}
inline Column int32_column(std::string name, const std::vector<std::int32_t>& values) {
  return fixed_column(std::move(name), "i", values);
}
inline Column float_column(std::string name, const std::vector<float>& values) {
  return fixed_column(std::move(name), "f", values);
}
inline Column double_column(std::string name, const std::vector<double>& values) {
  return fixed_column(std::move(name), "g", values);
}
inline Column bool_column(std::string name, const std::vector<bool>& values) {
  return {std::move(name), "b", static_cast<std::int64_t>(values.size()), {nullptr, bits_of(values)}};
}

// begin, begin + 1, ...: for tests that track rows.
inline Column row_numbers(std::string name, std::int64_t begin, std::int64_t rows) {
  std::vector<std::int64_t> values;
  for (std::int64_t i = 0; i < rows; ++i) values.push_back(begin + i);
  return int64_column(std::move(name), values);
}

// "u" and "z" have 32-bit offsets, "U" and "Z" 64-bit offsets.
inline Column string_column(std::string name, const std::vector<std::string>& values, std::string format = "u") {
  std::string bytes;
  std::vector<std::int64_t> ends = {0};
  for (const auto& value : values) ends.push_back(static_cast<std::int64_t>((bytes += value).size()));
  const bool wide = format == "U" || format == "Z";
  auto offsets = wide ? buffer_of(ends) : buffer_of(std::vector<std::int32_t>(ends.begin(), ends.end()));
  return {std::move(name),
          std::move(format),
          static_cast<std::int64_t>(values.size()),
          {nullptr, std::move(offsets), buffer_of(std::vector<char>(bytes.begin(), bytes.end()))}};
}

inline Column string_column(std::string name, const Optionals<std::string>& values, std::string format = "u") {
  std::vector<std::string> texts;
  std::vector<bool> valid;
  for (const auto& value : values) {
    texts.push_back(value.value_or(""));
    valid.push_back(value.has_value());
  }
  return with_nulls(string_column(std::move(name), texts, std::move(format)), valid);
}

inline Column fixed_list_column(std::string name, Column values, std::int64_t per_row) {
  const std::int64_t rows = per_row == 0 ? 0 : values.length / per_row;
  return {std::move(name), "+w:" + std::to_string(per_row), rows, {nullptr}, {std::move(values)}};
}

// Row i has the values from ends[i - 1] (or 0) up to ends[i].
inline Column list_column(std::string name, Column values, const std::vector<std::int32_t>& ends) {
  std::vector<std::int32_t> offsets = {0};
  offsets.insert(offsets.end(), ends.begin(), ends.end());
  const auto rows = static_cast<std::int64_t>(ends.size());
  return {std::move(name), "+l", rows, {nullptr, buffer_of(offsets)}, {std::move(values)}};
}

inline Column struct_column(std::string name, std::vector<Column> fields) {
  const std::int64_t rows = fields.at(0).length;
  return {std::move(name), "+s", rows, {nullptr}, std::move(fields)};
}

inline Column dictionary_column(std::string name, const std::vector<std::int32_t>& indices, Column values) {
  Column made = int32_column(std::move(name), indices);
  made.dictionary = std::make_shared<Column>(std::move(values));
  return made;
}

// Shares the buffers, like slices of Arrow arrays.
inline Column slice(Column column, std::int64_t begin, std::int64_t rows) {
  column.offset += begin;
  column.length = rows;
  if (column.null_count != 0) column.null_count = -1;
  return column;
}

inline ArrowSchema export_schema(const Column& column) {
  struct Held {
    std::string format, name, metadata;
    std::vector<ArrowSchema> children;
    std::vector<ArrowSchema*> pointers;
    ArrowSchema dictionary{};
  };
  auto held = std::make_unique<Held>(Held{column.format, column.name, column.metadata, {}, {}, {}});
  for (const auto& child : column.children) held->children.push_back(export_schema(child));
  for (auto& child : held->children) held->pointers.push_back(&child);
  if (column.dictionary) held->dictionary = export_schema(*column.dictionary);
  ArrowSchema made{};
  made.format = held->format.c_str();
  made.name = held->name.c_str();
  made.metadata = held->metadata.empty() ? nullptr : held->metadata.data();
  made.flags = column.flags;
  made.n_children = static_cast<std::int64_t>(held->children.size());
  made.children = held->pointers.empty() ? nullptr : held->pointers.data();
  made.dictionary = column.dictionary ? &held->dictionary : nullptr;
  made.private_data = held.release();
  made.release = [](ArrowSchema* schema) {
    const std::unique_ptr<Held> last(static_cast<Held*>(schema->private_data));
    for (auto& child : last->children) {
      if (child.release) child.release(&child);
    }
    if (last->dictionary.release) last->dictionary.release(&last->dictionary);
    schema->release = nullptr;
  };
  return made;
}

inline ArrowArray export_array(const Column& column) {
  struct Held {
    std::vector<ArrowBuffer> buffers;
    std::vector<const void*> pointers;
    std::vector<ArrowArray> children;
    std::vector<ArrowArray*> child_pointers;
    ArrowArray dictionary{};
  };
  auto held = std::make_unique<Held>(Held{column.buffers, {}, {}, {}, {}});
  for (const auto& buffer : held->buffers) held->pointers.push_back(buffer ? buffer->data() : nullptr);
  for (const auto& child : column.children) held->children.push_back(export_array(child));
  for (auto& child : held->children) held->child_pointers.push_back(&child);
  if (column.dictionary) held->dictionary = export_array(*column.dictionary);
  ArrowArray made{};
  made.length = column.length;
  made.null_count = column.null_count;
  made.offset = column.offset;
  made.n_buffers = static_cast<std::int64_t>(held->pointers.size());
  made.buffers = held->pointers.data();
  made.n_children = static_cast<std::int64_t>(held->children.size());
  made.children = held->child_pointers.empty() ? nullptr : held->child_pointers.data();
  made.dictionary = column.dictionary ? &held->dictionary : nullptr;
  made.private_data = held.release();
  made.release = [](ArrowArray* array) {
    const std::unique_ptr<Held> last(static_cast<Held*>(array->private_data));
    for (auto& child : last->children) {
      if (child.release) child.release(&child);
    }
    if (last->dictionary.release) last->dictionary.release(&last->dictionary);
    array->release = nullptr;
  };
  return made;
}

template <typename C>
bool released(const C& c) {
  return !c.release;
}

// A record batch; its columns have the same length.
inline Column table_of(std::vector<Column> columns) { return struct_column("", std::move(columns)); }

struct StreamFault {
  std::int64_t after_chunks = std::numeric_limits<std::int64_t>::max();
  int code = EIO;
  std::string message = "the store does not answer";
};

// The columns in chunks of `rows_per_chunk`, and a last one with the rest. Chunks share the columns' buffers. With a
// fault, get_next() fails from that point on.
inline ArrowArrayStream make_stream(std::vector<Column> columns, std::int64_t rows_per_chunk, StreamFault fault = {}) {
  struct Held {
    Column table;
    std::int64_t rows_per_chunk;
    StreamFault fault;
    std::int64_t chunks = 0;
    std::int64_t row = 0;
    bool failed = false;
  };
  ArrowArrayStream made{};
  made.private_data = new Held{table_of(std::move(columns)), rows_per_chunk, std::move(fault)};
  made.get_schema = [](ArrowArrayStream* stream, ArrowSchema* out) {
    *out = export_schema(static_cast<Held*>(stream->private_data)->table);
    return 0;
  };
  made.get_next = [](ArrowArrayStream* stream, ArrowArray* out) {
    auto& held = *static_cast<Held*>(stream->private_data);
    if (held.chunks >= held.fault.after_chunks) {
      held.failed = true;
      return held.fault.code;
    }
    const std::int64_t rows = std::min(held.rows_per_chunk, held.table.length - held.row);
    *out = ArrowArray{};
    if (rows <= 0) return 0;
    std::vector<Column> slices;
    for (const auto& column : held.table.children) slices.push_back(slice(column, held.row, rows));
    *out = export_array(table_of(std::move(slices)));
    held.row += rows;
    ++held.chunks;
    return 0;
  };
  made.get_last_error = [](ArrowArrayStream* stream) -> const char* {
    const auto& held = *static_cast<Held*>(stream->private_data);
    return held.failed ? held.fault.message.c_str() : nullptr;
  };
  made.release = [](ArrowArrayStream* stream) {
    delete static_cast<Held*>(stream->private_data);
    stream->release = nullptr;
  };
  return made;
}

}  // namespace trireme::tests
