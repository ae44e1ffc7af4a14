#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "data/array_memory.h"
#include "data/arrays.h"
#include "trireme/tensor.h"
#include "trireme/value.h"

// Arrays of plain values. Which value a type can hold is decided by the callers.

namespace trireme::data {

using Values = std::vector<const Value*>;  // nullptr for null
Values pointers_to(const List& values);
Validity validity_of(const Values& values);

OwnedArray null_array(std::size_t count);
// Values of a fixed width.
OwnedArray flat_array(std::size_t count, const Validity& validity, const void* values,
                      std::shared_ptr<const void> owner);
OwnedArray bits_array(std::size_t count, const Validity& validity, const std::function<bool(std::size_t)>& at);

// Text i has the bytes from offsets[i] to offsets[i + 1].
template <typename Offset>
OwnedArray text_array(std::vector<Offset> offsets, const Validity& validity, std::string bytes) {
  const auto starts = std::make_shared<std::vector<Offset>>(std::move(offsets));
  const auto text = std::make_shared<std::string>(std::move(bytes));
  return make_array(std::ssize(*starts) - 1, validity.nulls, {validity.bits, starts->data(), text->data()},
                    {validity.owner, starts, text});
}

std::string_view text_of(const Value& value);
// Text or bytes, which must not be longer than an offset can tell.
template <typename Offset>
OwnedArray text_array(const Values& values) {
  std::vector<Offset> offsets = {0};
  offsets.reserve(values.size() + 1);
  for (const Value* value : values) {
    offsets.push_back(offsets.back() + static_cast<Offset>(value ? text_of(*value).size() : 0));
  }
  std::string text;
  text.reserve(static_cast<std::size_t>(offsets.back()));
  for (const Value* value : values) {
    if (value) text += text_of(*value);
  }
  return text_array(std::move(offsets), validity_of(values), std::move(text));
}

// List i has the items from offsets[i] to offsets[i + 1].
template <typename Offset>
OwnedArray list_array(std::vector<Offset> offsets, const Validity& validity, OwnedArray items) {
  const auto owner = std::make_shared<std::vector<Offset>>(std::move(offsets));
  return make_array(std::ssize(*owner) - 1, validity.nulls, {validity.bits, owner->data()}, {validity.owner, owner},
                    in_vector(std::move(items)));
}

// The elements of a tensor, whose memory is shared except for booleans.
OwnedArray tensor_values(const Tensor& tensor);
// Rows of this shape as a list of lists of a fixed size, whose values are in `array`.
OwnedArray in_fixed_lists(OwnedArray array, std::int64_t rows, const std::vector<std::int64_t>& row_shape,
                          const Validity& validity);
OwnedSchema fixed_lists_schema(DType dtype, const std::vector<std::int64_t>& row_shape, const std::string& name);

}  // namespace trireme::data
