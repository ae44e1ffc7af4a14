#include "formats/tf_example.h"

#include <array>
#include <limits>
#include <memory>

#include "base/text.h"
#include "data/value_arrays.h"
#include "formats/tf_wire.h"

namespace trireme::formats {
namespace {

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

data::OwnedArray ExampleColumns::take() {
  std::vector<data::OwnedArray> made;
  for (auto& column : columns_) {
    const auto validity = data::validity_of(column.valid.size(), [&](std::size_t i) { return !column.valid[i]; });
    auto values = take_values(column, column.what.list ? data::Validity() : validity);
    if (column.what.list)
      values = data::list_array(std::exchange(column.list_offsets, {0}), validity, std::move(values));
    made.push_back(std::move(values));
    column.valid.clear();
  }
  return data::make_array(std::exchange(rows_, 0), 0, {nullptr}, {}, std::move(made));
}

data::OwnedArray ExampleColumns::take_values(Column& column, const data::Validity& validity) {
  auto bytes = std::exchange(column.values, {});
  column.values.reserve(bytes.size());  // the next batch is about as large
  if (column.what.kind() != FeatureKind::kBytes) {
    const std::size_t count = bytes.size() / (column.what.format == 'f' ? 4 : 8);
    const auto owner = std::make_shared<std::string>(std::move(bytes));
    return data::flat_array(count, validity, owner->data(), owner);
  }
  auto offsets = std::exchange(column.offsets, {0});
  if (column.what.format == 'Z') return data::text_array(std::move(offsets), validity, std::move(bytes));
  return data::text_array(std::vector<std::int32_t>(offsets.begin(), offsets.end()), validity, std::move(bytes));
}

data::OwnedSchema ExampleColumns::schema() const {
  std::vector<data::OwnedSchema> fields;
  for (const auto& column : columns_) {
    const std::string format(1, column.what.format);
    std::vector<data::OwnedSchema> items;
    if (column.what.list) items.push_back(data::make_schema(format, "item"));
    fields.push_back(data::make_schema(column.what.list ? "+l" : format, column.what.name, std::move(items)));
  }
  data::OwnedSchema made = data::make_schema("+s", "", std::move(fields));
  made->flags = 0;
  return made;
}

}  // namespace trireme::formats
