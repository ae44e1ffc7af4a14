#include "data/value_arrays.h"

#include <fmt/format.h>

#include "base/check.h"
#include "data/element_types.h"

namespace trireme::data {

Values pointers_to(const List& values) {
  Values pointers;
  pointers.reserve(values.size());
  for (const auto& each : values) pointers.push_back(each.is_null() ? nullptr : &each);
  return pointers;
}

Validity validity_of(const Values& values) {
  return validity_of(values.size(), [&](std::size_t i) { return !values[i]; });
}

OwnedArray null_array(std::size_t count) {
  return make_array(static_cast<std::int64_t>(count), static_cast<std::int64_t>(count), {}, {});
}

OwnedArray flat_array(std::size_t count, const Validity& validity, const void* values,
                      std::shared_ptr<const void> owner) {
  return make_array(static_cast<std::int64_t>(count), validity.nulls, {validity.bits, values},
                    {validity.owner, std::move(owner)});
}

OwnedArray bits_array(std::size_t count, const Validity& validity, const std::function<bool(std::size_t)>& at) {
  auto [owner, bits] = memory<std::uint8_t>((count + 7) / 8);
  for (std::size_t i = 0; i < count; ++i) bits[i / 8] |= static_cast<std::uint8_t>((at(i) ? 1 : 0) << (i % 8));
  return flat_array(count, validity, bits, owner);
}

std::string_view text_of(const Value& value) {
  const auto* bytes = value.get_if<Bytes>();
  return bytes ? bytes->data : value.as_string();
}

OwnedArray tensor_values(const Tensor& tensor) {
  const auto count = static_cast<std::size_t>(tensor.num_elements());
  if (tensor.dtype() == DType::kBool) {
    const auto values = tensor.values<bool>();
    return bits_array(count, {}, [&](std::size_t i) { return values[i]; });
  }
  const auto held = std::make_shared<Tensor>(tensor);
  return flat_array(count, {}, held->data(), held);
}

OwnedArray in_fixed_lists(OwnedArray array, std::int64_t rows, const std::vector<std::int64_t>& row_shape,
                          const Validity& validity) {
  for (std::size_t left = row_shape.size(); left > 0; --left) {
    std::int64_t length = rows;
    for (std::size_t i = 0; i + 1 < left; ++i) length *= row_shape[i];
    const bool outermost = left == 1;
    array = make_array(length, outermost ? validity.nulls : 0, {outermost ? validity.bits : nullptr}, {validity.owner},
                       in_vector(std::move(array)));
  }
  return array;
}

OwnedSchema fixed_lists_schema(DType dtype, const std::vector<std::int64_t>& row_shape, const std::string& name) {
  if (row_shape.empty()) {
    const auto* type = find_element_type(dtype);
    TRIREME_CHECK(type, "no column has elements of {}", name_of(dtype));
    return make_schema(type->format, name);
  }
  auto items = fixed_lists_schema(dtype, {row_shape.begin() + 1, row_shape.end()}, "item");
  return make_schema(fmt::format("+w:{}", row_shape.front()), name, in_vector(std::move(items)));
}

}  // namespace trireme::data
