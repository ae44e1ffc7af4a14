#pragma once

#include <map>
#include <optional>
#include <string>
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
// The value of a text key; nullptr if it is not there.
const Value* find_in(const Pairs& pairs, const std::string& key);

// Values by column, such as categories.
using ListsByColumn = std::map<std::string, List>;
List encoded_list(const List& values);
Value encoded_lists(const ListsByColumn& lists);

// {"$dtype": "<f4"}, or null.
Value encoded_dtype(std::optional<DType> dtype);
base::Result<std::optional<DType>> decoded_dtype(const Value& value);

}  // namespace trireme::preprocess
