#pragma once

#include <optional>

#include "base/result.h"
#include "data/arrow_c.h"
#include "data/schema.h"
#include "trireme/tensor.h"

namespace trireme::data {

// The type of a schema's format, children and dictionary. The error names an unsupported type and an alternative.
base::Result<Type> parse_type(const ArrowSchema& schema);

// The tensor type of a column's values; dates and times are integers. Nothing if a value is not a single number.
std::optional<DType> element_type(const Type& type);

// Format of a dictionary's indices.
std::int64_t index_width(const std::string& index_format);

// The number of buffers of an Arrow array of that kind; the first is the validity, if any.
std::int64_t buffer_count(Kind kind);

}  // namespace trireme::data
