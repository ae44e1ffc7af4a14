#pragma once

#include <optional>
#include <string>

#include "plan/value_types.h"

// Numbers in other types than their own.

namespace trireme::plan {

// Whether the type has numbers, which may not hold every integer.
bool has_numbers(const ValueType& type);
// Why a value loses digits in this type; nothing if it does not.
std::optional<std::string> why_lost(const Value& value, const ValueType& type);

// Writes a number or a tensor of one number to memory of this type.
void store_number(const Value& value, DType dtype, void* out);
bool is_true(const Value& value);
// The tensor itself if it has the type.
Tensor with_dtype(const Tensor& tensor, DType dtype);
// The elements along the first dimension: plain values, or tensors.
List elements_of(const Tensor& tensor);

}  // namespace trireme::plan
