#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>

#include "data/array_values.h"
#include "data/bits.h"
#include "data/chunk.h"
#include "data/schema.h"
#include "data/value_arrays.h"
#include "preprocess/big_int.h"
#include "preprocess/columns.h"
#include "preprocess/decimals.h"
#include "preprocess/number_types.h"
#include "preprocess/python_text.h"
#include "preprocess/temporal.h"

namespace trireme::preprocess {
namespace {

using data::flat_array;
using data::in_vector;
using data::make_array;
using data::make_schema;
using data::memory;
using data::Validity;
using data::validity_of;
using data::Values;

Validity validity_like(const Column& column) {
  const ArrowArray& array = *column.array;
  const auto rows = static_cast<std::size_t>(column.rows());
  if (column.format() == "n") return validity_of(rows, [](std::size_t) { return true; });
  if (!any_null(array, 0, column.rows())) return {};
  const auto* valid = static_cast<const std::byte*>(array.buffers[0]);
  auto [owner, bits] = memory<std::byte>((rows + 7) / 8);
  data::copy_bits(valid, array.offset, bits, 0, column.rows());
  return {owner, bits, column.rows() - data::count_bits(valid, array.offset, column.rows())};
}

base::Error no_value(const Value& value) {
  return base::error("{} does not fit the type of the column", python_text(value));
}

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
    if (const auto big = parse_big_int(value); big && std::in_range<T>(*big)) return static_cast<T>(*big);
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
  return flat_array(values.size(), validity_of(values), out, owner);
}

base::Result<OwnedArray> halves_array(const Values& values) {
  auto [owner, out] = memory<std::uint16_t>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    TRIREME_ASSIGN(const double number, number_as<double>(*values[i]));
    out[i] = half_of(number);
  }
  return flat_array(values.size(), validity_of(values), out, owner);
}

template <typename T>
base::Result<OwnedArray> temporal_array(std::string_view format, const Values& values) {
  auto [owner, out] = memory<T>(values.size());
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const auto temporal = parse_temporal(*values[i]);
    const auto number = temporal ? temporal_number(format, *temporal) : std::nullopt;
    if (!number) return no_value(*values[i]);
    out[i] = static_cast<T>(*number);
  }
  return flat_array(values.size(), validity_of(values), out, owner);
}

base::Result<OwnedArray> decimals_array(std::string_view format, const Values& values) {
  const auto width = static_cast<std::size_t>(decimal_width(format));
  auto [owner, out] = memory<std::byte>(values.size() * width);
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!values[i]) continue;
    const auto decimal = decimal_of(*values[i]);
    if (!decimal || !store_decimal(format, *decimal, out + i * width)) return no_value(*values[i]);
  }
  return flat_array(values.size(), validity_of(values), out, owner);
}

base::Result<OwnedArray> flags_array(const Values& values) {
  for (const Value* value : values) {
    if (value && !value->get_if<bool>()) return no_value(*value);
  }
  return data::bits_array(values.size(), validity_of(values),
                          [&](std::size_t i) { return values[i] && values[i]->as_bool(); });
}

template <typename Offset, typename Text>
base::Result<OwnedArray> texts_array(const Values& values) {
  std::size_t bytes = 0;
  for (const Value* value : values) {
    if (value && !value->get_if<Text>()) return no_value(*value);
    bytes += value ? data::text_of(*value).size() : 0;
  }
  if (!std::in_range<Offset>(bytes)) return base::error("more than 2 GiB of text in one batch");
  return data::text_array<Offset>(values);
}

base::Result<OwnedArray> array_of(const ArrowSchema& type, const Values& values);

template <typename Offset>
base::Result<OwnedArray> lists_array(const ArrowSchema& type, const Values& values) {
  std::vector<Offset> offsets = {0};
  Values inside;
  for (const Value* value : values) {
    if (value) {
      const auto* list = value->get_if<List>();
      if (!list) return no_value(*value);
      for (const auto& each : *list) inside.push_back(each.is_null() ? nullptr : &each);
    }
    offsets.push_back(static_cast<Offset>(inside.size()));
  }
  TRIREME_ASSIGN(auto items, array_of(*type.children[0], inside));
  return data::list_array(std::move(offsets), validity_of(values), std::move(items));
}

base::Result<OwnedArray> array_of(const ArrowSchema& type, const Values& values) {
  const std::string_view format = type.format;
  if (format == "+l") return lists_array<std::int32_t>(type, values);
  if (format == "+L") return lists_array<std::int64_t>(type, values);
  if (is_decimal(format)) return decimals_array(format, values);
  if (temporal_kind(format)) {
    return temporal_width(format) == 4 ? temporal_array<std::int32_t>(format, values)
                                       : temporal_array<std::int64_t>(format, values);
  }
  switch (format.size() == 1 ? format[0] : '?') {
    case 'n': return data::null_array(values.size());
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
    case 'u': return texts_array<std::int32_t, std::string>(values);
    case 'U': return texts_array<std::int64_t, std::string>(values);
    case 'z': return texts_array<std::int32_t, Bytes>(values);
    case 'Z': return texts_array<std::int64_t, Bytes>(values);
    default: return base::error("columns of this type cannot be filled");
  }
}

// With the scale of the value that has most decimal places.
std::string decimals_format(const std::vector<Value>& values) {
  int scale = 0;
  int before = 0;  // digits before the point
  for (const auto& value : values) {
    const auto decimal = decimal_of(value);
    if (!decimal) continue;
    scale = std::max(scale, -decimal->exponent);
    before = std::max(before, static_cast<int>(decimal->digits.size()) + decimal->exponent);
  }
  return scale + before <= 38 ? fmt::format("d:38,{}", scale) : fmt::format("d:76,{},256", scale);
}

std::string temporals_format(Temporal finest, const std::vector<Value>& values) {
  for (const auto& value : values) {
    const auto temporal = parse_temporal(value);
    if (temporal && temporal->nanos % 1000 != 0) finest.nanos = temporal->nanos;
  }
  return std::string(temporal_format(finest));
}

}  // namespace

Column from_doubles(std::string name, std::shared_ptr<const double[]> values, const Column& like) {
  auto schema = make_schema("g", name);
  const void* out = values.get();
  return {std::move(name), std::move(schema),
          flat_array(static_cast<std::size_t>(like.rows()), validity_like(like), out, std::move(values))};
}

Column from_floats(std::string name, std::vector<double> values, const Column& like) {
  const auto validity = validity_like(like);
  const bool narrow = like.format() == "f";
  auto schema = make_schema(narrow ? "f" : "g", name);
  const std::size_t count = values.size();
  if (!narrow) {
    auto owner = std::make_shared<std::vector<double>>(std::move(values));
    const void* out = owner->data();
    return {std::move(name), std::move(schema), flat_array(count, validity, out, std::move(owner))};
  }
  auto [owner, out] = memory<float>(count);
  for (std::size_t i = 0; i < count; ++i) out[i] = static_cast<float>(values[i]);
  return {std::move(name), std::move(schema), flat_array(count, validity, out, owner)};
}

Column from_numbers(std::string name, std::vector<std::int64_t> values) {
  const auto validity = validity_of(values.size(), [&](std::size_t i) { return values[i] < 0; });
  auto schema = make_schema("l", name);
  const std::size_t count = values.size();
  auto owner = std::make_shared<std::vector<std::int64_t>>(std::move(values));
  const void* out = owner->data();
  return {std::move(name), std::move(schema), flat_array(count, validity, out, std::move(owner))};
}

base::Result<Column> from_lists(std::string name, const std::vector<std::int64_t>& offsets, Column items,
                                const Column* like) {
  if (!std::in_range<std::int32_t>(offsets.back())) return base::error("more than 2^31 list elements in one batch");
  auto schema = make_schema("+l", name, in_vector(data::renamed(std::move(items.schema), "item")));
  std::vector<std::int32_t> narrow(offsets.begin(), offsets.end());
  const auto validity = like ? validity_like(*like) : Validity();
  return Column{std::move(name), std::move(schema),
                data::list_array(std::move(narrow), validity, std::move(items.array))};
}

Column from_tensor(std::string name, const Tensor& tensor) {
  const std::vector<std::int64_t> width = {tensor.shape()[1]};
  auto lists = data::fixed_lists_schema(tensor.dtype(), width, name);
  return {std::move(name), data::as_tensors(std::move(lists), width),
          data::in_fixed_lists(data::tensor_values(tensor), tensor.shape()[0], width, {})};
}

base::Result<Column> from_values(std::string name, const ArrowSchema& type, const std::vector<const Value*>& values) {
  TRIREME_ASSIGN(auto array, array_of(type, values));
  auto schema = data::renamed(copied(type), name);
  return Column{std::move(name), std::move(schema), std::move(array)};
}

base::Result<Column> from_codes(std::string name, const std::vector<std::int64_t>& codes, const ArrowSchema& type,
                                const std::vector<Value>& values) {
  TRIREME_ASSIGN(auto dictionary, from_values("", type, data::pointers_to(values)));
  auto [owner, out] = memory<std::int32_t>(codes.size());
  for (std::size_t i = 0; i < codes.size(); ++i)
    out[i] = static_cast<std::int32_t>(std::max<std::int64_t>(codes[i], 0));
  const auto validity = validity_of(codes.size(), [&](std::size_t i) { return codes[i] < 0; });
  auto schema = data::with_dictionary(make_schema("i", name), std::move(dictionary.schema));
  return Column{std::move(name), std::move(schema),
                data::with_dictionary(flat_array(codes.size(), validity, out, owner), std::move(dictionary.array))};
}

base::Result<OwnedSchema> schema_for(const std::vector<Value>& values) {
  if (values.empty()) return make_schema("n", "");
  const Value& value = values.front();
  if (std::any_of(values.begin(), values.end(), [](const Value& each) { return parse_big_int(each).has_value(); }))
    return make_schema("L", "");
  if (value.get_if<bool>()) return make_schema("b", "");
  if (value.get_if<std::int64_t>()) return make_schema("l", "");
  if (value.get_if<double>()) return make_schema("g", "");
  if (value.get_if<std::string>()) return make_schema("u", "");
  if (value.get_if<Bytes>()) return make_schema("z", "");
  if (decimal_of(value)) return make_schema(decimals_format(values), "");
  if (const auto temporal = parse_temporal(value)) return make_schema(temporals_format(*temporal, values), "");
  if (const auto* list = value.get_if<List>()) {
    std::vector<Value> items;
    for (const auto& each : *list) {
      if (!each.is_null()) items.push_back(each);
    }
    TRIREME_ASSIGN(auto child, schema_for(items));
    return make_schema("+l", "", in_vector(data::renamed(std::move(child), "item")));
  }
  return base::error("{} cannot be stored in a table", python_text(value));
}

base::Result<Column> filled(std::string name, const Column& column, const Column& filling) {
  std::vector<data::Run> runs;  // of two tables with one column each
  for (std::int64_t i = 0; i < column.rows(); ++i) {
    const bool missing = missing_at(*column.schema, *column.array, i);
    if (missing) runs.push_back({1, 0, 1});
    else if (!runs.empty() && runs.back().chunk == 0) ++runs.back().count;
    else runs.push_back({0, i, 1});
  }
  TRIREME_ASSIGN(const auto schema,
                 data::Schema::take(make_schema("+s", "", in_vector(data::renamed(copied(*column.schema), name)))));
  if (runs.empty()) return std::move(Table(data::Batch::empty(schema).exported()).taken().front());
  std::vector<std::shared_ptr<const data::Chunk>> chunks;
  for (const auto* array : {&column.array, &filling.array}) {
    auto table = make_array((*array)->length, 0, {nullptr}, {}, in_vector(lent(*array)));
    TRIREME_ASSIGN(auto chunk, data::Chunk::take(std::move(table), schema));
    chunks.push_back(std::move(chunk));
  }
  TRIREME_ASSIGN(const auto batch, data::Batch::gather(chunks, runs));
  return std::move(Table(batch.exported()).taken().front());
}

}  // namespace trireme::preprocess
