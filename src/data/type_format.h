#pragma once

#include <optional>

#include "base/result.h"
#include "data/arrow_c.h"
#include "data/schema.h"
#include "trireme/tensor.h"

namespace trireme::data {

// The type that a schema's format, children and dictionary make. The error says what is not read, and the way out.
base::Result<Type> parse_type(const ArrowSchema& schema);

// How a tensor has the values of a column; dates and times are whole numbers. None for what is no single number.
std::optional<DType> element_type(const Type& type);

// Of the format of a dictionary's indices.
std::int64_t index_width(const std::string& index_format);

// How many buffers Arrow's array of that kind has; the first is the validity, where there is one.
std::int64_t buffer_count(Kind kind);

}  // namespace trireme::data
