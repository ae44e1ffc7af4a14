#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trireme/value.h"

// Arguments and statistics as Python writes them: what JSON does not have is a dict with one key, "$" and the kind.
// Whoever reads it trusts nothing that is in it.

namespace trireme::api::preprocessing {

// A list is a tuple there: lists as such are no categories.
Value encoded(const Value& value);
base::Result<Value> decoded(const Value& value);

// A dict with keys of any kind.
using Pairs = std::vector<std::pair<Value, Value>>;
Value encoded_pairs(Pairs pairs);
base::Result<Pairs> decoded_pairs(const Value& value);

// {"$dtype": "<f4"}, and null for none.
Value encoded_dtype(std::optional<DType> dtype);
base::Result<std::optional<DType>> decoded_dtype(const Value& value);

}  // namespace trireme::api::preprocessing
