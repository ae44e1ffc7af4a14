#include "formats/tf_example.h"

#include <array>
#include <cstring>
#include <limits>
#include <memory>

#include "base/text.h"
#include "data/array_buffers.h"
#include "data/arrays.h"
#include "data/bits.h"
#include "formats/tf_wire.h"

namespace trireme::formats {
namespace {

using data::Array;
using data::Buffer;
using data::Kind;
using data::Type;
using tf_wire::for_each_feature;
using tf_wire::for_each_value;

constexpr std::size_t kNowhere = std::numeric_limits<std::size_t>::max();

struct Format {
  char format;
  FeatureKind kind;
  std::string_view name;
};
constexpr std::array<Format, 5> kFormats = {{{'z', FeatureKind::kBytes, "binary"},
                                             {'u', FeatureKind::kBytes, "string"},
                                             {'Z', FeatureKind::kBytes, "large_binary"},
                                             {'f', FeatureKind::kFloat, "float"},
                                             {'l', FeatureKind::kInt, "int64"}}};

const Format& format_of(char format) {
  for (const auto& each : kFormats) {
    if (each.format == format) return each;
  }
  TRIREME_CHECK(false, "no feature has the format {}", format);
  return kFormats[0];
}

std::string_view name_of(FeatureKind kind) {
  for (const auto& each : kFormats) {
    if (each.kind == kind) return each.name;
  }
  return "nothing";
}

template <typename T, typename From>
Buffer buffer_of(const std::vector<From>& values) {
  Buffer buffer = Buffer::of(static_cast<std::int64_t>(values.size() * sizeof(T)));
  auto* out = reinterpret_cast<T*>(buffer.data());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
  return buffer;
}

Buffer buffer_of(const std::string& bytes) {
  Buffer buffer = Buffer::of(static_cast<std::int64_t>(bytes.size()));
  if (!bytes.empty()) std::memcpy(buffer.data(), bytes.data(), bytes.size());
  return buffer;
}

void set_validity(Array& array, const std::vector<std::uint8_t>& valid) {
  for (const auto each : valid) array.null_count += each ? 0 : 1;
  if (array.null_count == 0) return;
  array.validity = Buffer::zeroed(static_cast<std::int64_t>((valid.size() + 7) / 8));
  for (std::size_t i = 0; i < valid.size(); ++i) {
    data::or_bit(array.validity.data(), static_cast<std::int64_t>(i), valid[i] != 0);
  }
}

Type type_of(const FeatureColumn& column) {
  const bool text = column.kind() == FeatureKind::kBytes;
  Type type;
  type.kind = text ? Kind::kText : Kind::kFixed;
  type.format = std::string(1, column.format);
  type.width = column.format == 'f' || (text && column.format != 'Z') ? 4 : 8;
  if (!column.list) return type;
  Type list;
  list.kind = Kind::kList;
  list.format = "+l";
  list.width = 4;
  list.children.push_back(std::move(type));
  return list;
}

}  // namespace

FeatureKind FeatureColumn::kind() const { return format_of(format).kind; }

std::string FeatureColumn::type() const {
  const std::string_view value = format_of(format).name;
  return list ? fmt::format("list<{}>", value) : std::string(value);
}

base::Result<FeatureColumn> FeatureColumn::of(std::string name, std::string_view type) {
  const bool list = type.starts_with("list<") && type.ends_with('>');
  const std::string_view value = list ? type.substr(5, type.size() - 6) : type;
  for (const auto& each : kFormats) {
    if (each.name == value) return FeatureColumn{std::move(name), each.format, list};
  }
  return base::error(
      "column '{}' is {}: features are binary, string, large_binary, float or int64, or a list of one of them", name,
      type);
}

base::Result<void> FeatureTypes::look(std::string_view example) {
  std::map<std::string_view, std::pair<FeatureKind, std::string_view>> features;  // the last one of each name
  const auto keep = [&](std::string_view name, FeatureKind kind, std::string_view content) -> base::Result<void> {
    features[name] = {kind, content};
    return {};
  };
  TRIREME_TRY(for_each_feature(example, keep));
  for (const auto& [name, feature] : features) {
    const auto [kind, content] = feature;
    TRIREME_ASSIGN(const auto count, for_each_value(kind, content, [](std::string_view) {}));
    auto found = seen_.find(name);
    if (found == seen_.end()) found = seen_.emplace(std::string(name), Seen{}).first;
    if (found->second.kind == FeatureKind::kNone) found->second.kind = kind;
    found->second.list |= count > 1;
  }
  return {};
}

std::vector<FeatureColumn> FeatureTypes::columns() const {
  std::vector<FeatureColumn> columns;
  for (const auto& [name, seen] : seen_) {
    const char format = seen.kind == FeatureKind::kFloat ? 'f' : seen.kind == FeatureKind::kInt ? 'l' : 'z';
    columns.push_back({name, format, seen.list});
  }
  return columns;
}

ExampleColumns::ExampleColumns(std::vector<FeatureColumn> columns, const std::vector<std::string>& known)
    : known_(known) {
  for (auto& each : columns) columns_.push_back({std::move(each), {}, {0}, {0}, {}, {}});
  for (const auto& name : known_) places_.emplace(name, kNowhere);
  for (std::size_t i = 0; i < columns_.size(); ++i) places_.insert_or_assign(columns_[i].what.name, i);
}

base::Result<void> ExampleColumns::add(std::string_view example) {
  ++rows_;
  if (columns_.empty()) return {};
  for (auto& column : columns_) column.slot = {};
  const auto place = [&](std::string_view name, FeatureKind kind, std::string_view content) -> base::Result<void> {
    const auto found = places_.find(name);
    if (found == places_.end()) {
      return base::error(
          "feature '{}' is not in the first records ({}); list all features in the schema of read_tfrecords", name,
          base::join(known_, ", "));
    }
    if (found->second != kNowhere) columns_[found->second].slot = {kind, content};
    return {};
  };
  TRIREME_TRY(for_each_feature(example, place));
  for (auto& column : columns_) TRIREME_TRY(append(column));
  return {};
}

base::Result<void> ExampleColumns::append(Column& column) {
  const auto& [name, format, list] = column.what;
  const auto [kind, content] = column.slot;
  if (kind != FeatureKind::kNone && kind != column.what.kind()) {
    return base::error("feature '{}' is {}, but {} in the first records", name, name_of(kind), format_of(format).name);
  }
  bool utf8 = true;
  const bool text = column.what.kind() == FeatureKind::kBytes;
  TRIREME_ASSIGN(const auto count, for_each_value(kind, content, [&](std::string_view value) {
                   column.values.append(value);
                   if (format == 'u') utf8 = utf8 && base::is_utf8(value);
                   if (text) column.offsets.push_back(static_cast<std::int64_t>(column.values.size()));
                 }));
  if (!utf8) return base::error("feature '{}' is not valid UTF-8, which a string must be", name);
  constexpr std::size_t kMost = std::numeric_limits<std::int32_t>::max();
  if ((column.values.size() > kMost && format != 'Z') || static_cast<std::size_t>(count) > kMost / 2) {
    return base::error("feature '{}' has more than 2 GB, too much for one batch", name);
  }
  if (list) {
    column.valid.push_back(kind != FeatureKind::kNone);
    column.list_offsets.push_back(column.list_offsets.back() + static_cast<std::int32_t>(count));
    return {};
  }
  if (count > 1) {
    return base::error(
        "feature '{}' has {} values, but one in the first records; declare it as a list in the schema of "
        "read_tfrecords",
        name, count);
  }
  column.valid.push_back(count == 1);
  if (count == 0 && text) column.offsets.push_back(column.offsets.back());
  if (count == 0 && !text) column.values.append(format == 'f' ? 4 : 8, '\0');
  return {};
}

ArrowArray ExampleColumns::take() {
  struct Taken {
    std::vector<Array> arrays;
  };
  auto taken = std::make_shared<Taken>();
  std::vector<data::OwnedArray> exported;
  for (auto& column : columns_) {
    const bool text = column.what.kind() == FeatureKind::kBytes;
    const std::int64_t width = column.what.format == 'f' ? 4 : 8;
    Array values;
    values.length = text ? static_cast<std::int64_t>(column.offsets.size()) - 1
                         : static_cast<std::int64_t>(column.values.size()) / width;
    Buffer content = buffer_of(column.values);
    if (text) {
      values.values =
          column.what.format == 'Z' ? buffer_of<std::int64_t>(column.offsets) : buffer_of<std::int32_t>(column.offsets);
      values.text = std::move(content);
    } else {
      values.values = std::move(content);
    }
    if (column.what.list) {
      Array list;
      list.length = rows_;
      list.values = buffer_of<std::int32_t>(column.list_offsets);
      list.children.push_back(std::move(values));
      values = std::move(list);
    }
    set_validity(values, column.valid);
    taken->arrays.push_back(std::move(values));
    column.valid.clear();
    column.values.clear();
    column.offsets.assign(1, 0);
    column.list_offsets.assign(1, 0);
  }
  for (std::size_t i = 0; i < columns_.size(); ++i) {
    exported.push_back(data::export_array(type_of(columns_[i].what), taken->arrays[i], taken));
  }
  return data::make_array(std::exchange(rows_, 0), 0, {nullptr}, {taken}, std::move(exported)).give();
}

ArrowSchema ExampleColumns::schema() const {
  std::vector<data::OwnedSchema> fields;
  for (const auto& column : columns_) {
    const std::string format(1, column.what.format);
    std::vector<data::OwnedSchema> items;
    if (column.what.list) items.push_back(data::make_schema(format, "item"));
    fields.push_back(data::make_schema(column.what.list ? "+l" : format, column.what.name, std::move(items)));
  }
  data::OwnedSchema made = data::make_schema("+s", "", std::move(fields));
  made->flags = 0;
  return made.give();
}

}  // namespace trireme::formats
