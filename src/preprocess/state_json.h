#pragma once

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/result.h"
#include "trireme/value.h"

// Arguments and statistics as Python writes them: values without a JSON type are a dict with one key, "$" and the kind.
// The content is not trusted.

namespace trireme::preprocess {

// Lists become tuples in Python: lists cannot be categories.
Value encoded(const Value& value);
base::Result<Value> decoded(const Value& value);

// A dict with keys of any type.
using Pairs = std::vector<std::pair<Value, Value>>;
Value encoded_pairs(Pairs pairs);
base::Result<Pairs> decoded_pairs(const Value& value);

// {"$dtype": "<f4"}, or null.
Value encoded_dtype(std::optional<DType> dtype);
base::Result<std::optional<DType>> decoded_dtype(const Value& value);

}  // namespace trireme::preprocess
