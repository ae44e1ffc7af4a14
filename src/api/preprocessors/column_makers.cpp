#include <cmath>
#include <cstring>
#include <limits>
#include <memory>

#include "api/preprocessors/columns.h"
#include "api/preprocessors/dates.h"
#include "api/preprocessors/number_types.h"
#include "api/preprocessors/python_text.h"
#include "data/array_memory.h"
#include "data/chunk.h"
#include "data/schema.h"
#include "plan/value_columns.h"

namespace trireme::api::preprocessing {
namespace {

using data::memory;
using data::Validity;
using data::validity_of;

using Values = std::vector<const Value*>;  // nullptr for null

OwnedArray flat_array(std::size_t count, const Validity& validity, const void* values,
                      std::shared_ptr<const void> owner) {
  return make_array(static_cast<std::int64_t>(count), validity.nulls, {validity.bits, values},
                    {validity.owner, std::move(owner)});
}

template <typename T>
OwnedArray flat_array(const std::vector<double>& values, const Validity& validity) {
  auto [owner, out] = memory<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = static_cast<T>(values[i]);
  return flat_array(values.size(), validity, out, owner);
}

base::Error no_value(const Value& value) { return base::error("{} does not fit the type of the column", shown(value)); }

// The number in that type, if it is exact.
template <typename T>
base::Result<T> number_as(const Value& value) {
  const auto* whole = value.get_if<std::int64_t>();
  const auto* real = value.get_if<double>();
  if constexpr (std::floating_point<T>) {
    if (const auto* flag = value.get_if<bool>()) return static_cast<T>(*flag ? 1 : 0);
    constexpr std::int64_t kExact = std::int64_t{1} << std::numeric_limits<T>::digits;
    if (whole && *whole <= kExact && *whole >= -kExact) return static_cast<T>(*whole);
    if (real) return static_cast<T>(*real);
  } else {
    if (whole && std::in_range<T>(*whole)) return static_cast<T>(*whole);
    if (real && std::trunc(*real) == *real && std::abs(*real) < 0x1p63 &&
        std::in_range<T>(static_cast<std::int64_t>(*real)))
      return static_cast<T>(*real);
  }
  return no_value(value);
}

template <typename T>
base::Result<OwnedArray> numbers_array(const Values& values) {
  auto [owner, out] = memory<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    TRIREME_ASSIGN(out[i], number_as<T>(*values[i]));
  }
  return flat_array(values.size(), validity_of(values.size(), [&](std::size_t i) { return !values[i]; }), out, owner);
}

base::Result<OwnedArray> halves_array(const Values& values) {
  auto [owner, out] = memory<std::uint16_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    TRIREME_ASSIGN(const double number, number_as<double>(*values[i]));
    out[i] = half_of(number);
  }
  return flat_array(values.size(), validity_of(values.size(), [&](std::size_t i) { return !values[i]; }), out, owner);
}

template <typename T>
base::Result<OwnedArray> dates_array(std::string_view format, const Values& values) {
  auto [owner, out] = memory<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const auto number = date_number(format, *values[i]);
    if (!number) return no_value(*values[i]);
    out[i] = static_cast<T>(*number);
  }
  return flat_array(values.size(), validity_of(values.size(), [&](std::size_t i) { return !values[i]; }), out, owner);
}

base::Result<OwnedArray> flags_array(const Values& values) {
  auto [owner, bits] = memory<std::uint8_t>((values.size() + 7) / 8);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const auto* flag = values[i]->get_if<bool>();
    if (!flag) return no_value(*values[i]);
    bits[i / 8] |= static_cast<std::uint8_t>((*flag ? 1 : 0) << (i % 8));
  }
  return flat_array(values.size(), validity_of(values.size(), [&](std::size_t i) { return !values[i]; }), bits, owner);
}

template <typename Offset>
base::Result<OwnedArray> texts_array(const Values& values, bool bytes) {
  auto [offsets_owner, offsets] = memory<Offset>(values.size() + 1);
  auto text = std::make_shared<std::string>();
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) {
      const auto* string = values[i]->get_if<std::string>();
      const auto* raw = values[i]->get_if<Bytes>();
      if (bytes ? !raw : !string) return no_value(*values[i]);
      *text += bytes ? raw->data : *string;
    }
    if (!std::in_range<Offset>(text->size())) return base::error("more than 2 GiB of text in one batch");
    offsets[i + 1] = static_cast<Offset>(text->size());
  }
  const auto validity = validity_of(values.size(), [&](std::size_t i) { return !values[i]; });
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits, offsets, text->data()},
                    {validity.owner, offsets_owner, text});
}

base::Result<OwnedArray> array_of(const ArrowSchema& type, const Values& values);

template <typename Offset>
base::Result<OwnedArray> lists_array(const ArrowSchema& type, const Values& values) {
  auto [owner, offsets] = memory<Offset>(values.size() + 1);
  Values inside;
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (values[i]) {
      const auto* list = values[i]->get_if<List>();
      if (!list) return no_value(*values[i]);
      for (const auto& each : *list) inside.push_back(each.is_null() ? nullptr : &each);
    }
    offsets[i + 1] = static_cast<Offset>(inside.size());
  }
  std::vector<OwnedArray> children;
  TRIREME_ASSIGN(auto child, array_of(*type.children[0], inside));
  children.push_back(std::move(child));
  const auto validity = validity_of(values.size(), [&](std::size_t i) { return !values[i]; });
  return make_array(static_cast<std::int64_t>(values.size()), validity.nulls, {validity.bits, offsets},
                    {validity.owner, owner}, std::move(children));
}

base::Result<OwnedArray> array_of(const ArrowSchema& type, const Values& values) {
  const std::string_view format = type.format;
  if (format == "+l") return lists_array<std::int32_t>(type, values);
  if (format == "+L") return lists_array<std::int64_t>(type, values);
  if (format == "tdD") return dates_array<std::int32_t>(format, values);
  if (is_date(format)) return dates_array<std::int64_t>(format, values);
  switch (format.size() == 1 ? format[0] : '?') {
    case 'n':
      return make_array(static_cast<std::int64_t>(values.size()), static_cast<std::int64_t>(values.size()), {}, {});
    case 'b': return flags_array(values);
    case 'c': return numbers_array<std::int8_t>(values);
    case 'C': return numbers_array<std::uint8_t>(values);
    case 's': return numbers_array<std::int16_t>(values);
    case 'S': return numbers_array<std::uint16_t>(values);
    case 'i': return numbers_array<std::int32_t>(values);
    case 'I': return numbers_array<std::uint32_t>(values);
    case 'l': return numbers_array<std::int64_t>(values);
    case 'L': return numbers_array<std::uint64_t>(values);
    case 'e': return halves_array(values);
    case 'f': return numbers_array<float>(values);
    case 'g': return numbers_array<double>(values);
    case 'u': return texts_array<std::int32_t>(values, false);
    case 'U': return texts_array<std::int64_t>(values, false);
    case 'z': return texts_array<std::int32_t>(values, true);
    case 'Z': return texts_array<std::int64_t>(values, true);
    default: return base::error("columns of this type cannot be filled");
  }
}

}  // namespace

Column from_floats(std::string name, const std::vector<double>& values, const Column& like) {
  const auto validity =
      validity_of(values.size(), [&](std::size_t i) { return null_at(*like.array, static_cast<std::int64_t>(i)); });
  const bool narrow = like.format() == "f";
  auto schema = make_schema(narrow ? "f" : "g", name);
  return {std::move(name), std::move(schema),
          narrow ? flat_array<float>(values, validity) : flat_array<double>(values, validity)};
}

Column from_numbers(std::string name, const std::vector<std::int64_t>& values) {
  auto [owner, out] = memory<std::int64_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) out[i] = std::max<std::int64_t>(values[i], 0);
  auto schema = make_schema("l", name);
  return {
      std::move(name), std::move(schema),
      flat_array(values.size(), validity_of(values.size(), [&](std::size_t i) { return values[i] < 0; }), out, owner)};
}

base::Result<Column> from_tensor(std::string name, Tensor tensor) {
  Dict columns;
  columns[name] = std::move(tensor);
  TRIREME_ASSIGN(auto record, record_of_columns(columns));
  ArrowSchema& schema = *record.schema->children[0];
  ArrowArray& array = *record.array->children[0];
  Column made{std::move(name), OwnedSchema(schema), OwnedArray(array)};
  schema.release = nullptr;
  array.release = nullptr;
  return made;
}

base::Result<Column> from_values(std::string name, const ArrowSchema& type, const std::vector<const Value*>& values) {
  TRIREME_ASSIGN(auto array, array_of(type, values));
  auto schema = renamed(copied(type), name);
  return Column{std::move(name), std::move(schema), std::move(array)};
}

base::Result<OwnedSchema> schema_for(const Value& value) {
  if (value.get_if<bool>()) return make_schema("b", "");
  if (value.get_if<std::int64_t>()) return make_schema("l", "");
  if (value.get_if<double>()) return make_schema("g", "");
  if (value.get_if<std::string>()) return make_schema("U", "");
  if (value.get_if<Bytes>()) return make_schema("Z", "");
  if (const auto* list = value.get_if<List>()) {
    std::vector<OwnedSchema> children;
    for (const auto& each : *list) {
      if (each.is_null()) continue;
      TRIREME_ASSIGN(auto child, schema_for(each));
      children.push_back(renamed(std::move(child), "item"));
      break;
    }
    if (children.empty()) children.push_back(make_schema("n", "item"));
    return make_schema("+L", "", std::move(children));
  }
  if (is_date(value)) return make_schema(value.as_dict().begin()->first == "$date" ? "tdD" : "tsu:", "");
  return base::error("{} cannot be stored in a table", shown(value));
}

base::Result<Column> filled(std::string name, const Column& column, const Column& filling) {
  std::vector<data::Run> runs;  // of two tables with one column each
  for (std::int64_t i = 0; i < column.rows(); ++i) {
    const bool missing = missing_at(*column.schema, *column.array, i);
    if (missing) runs.push_back({1, 0, 1});
    else if (!runs.empty() && runs.back().chunk == 0) ++runs.back().count;
    else runs.push_back({0, i, 1});
  }
  std::vector<OwnedSchema> schemas;
  schemas.push_back(renamed(copied(*column.schema), name));
  ArrowSchema c_schema = make_schema("+s", "", std::move(schemas)).give();
  TRIREME_ASSIGN(const auto schema, data::Schema::take(c_schema));
  std::vector<std::shared_ptr<const data::Chunk>> chunks;
  for (const auto* array : {&column.array, &filling.array}) {
    std::vector<OwnedArray> only;
    only.push_back(lent(*array));
    ArrowArray c_array = make_array((*array)->length, 0, {nullptr}, {}, std::move(only)).give();
    TRIREME_ASSIGN(auto chunk, data::Chunk::take(c_array, schema));
    chunks.push_back(std::move(chunk));
  }
  TRIREME_ASSIGN(const auto batch, data::Batch::gather(chunks, runs));
  return std::move(Table::of(batch).taken().front());
}

}  // namespace trireme::api::preprocessing
