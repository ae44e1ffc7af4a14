#pragma once

#include <string>

#include "trireme/value.h"

namespace trireme::boosting {

// JSON without spaces, as Python's json.dumps(value, separators=(",", ":"), ensure_ascii=False).
std::string to_json(const Value& value);
// Throws std::runtime_error.
Value from_json(const std::string& text);

}  // namespace trireme::boosting
