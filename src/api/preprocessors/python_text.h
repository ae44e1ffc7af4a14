#pragma once

#include <string>

#include "trireme/value.h"

namespace trireme::api::preprocessing {

// "['age']", "None", "0.5": as Python shows it, so that messages read alike in both languages.
std::string python_text(const Value& value);

}  // namespace trireme::api::preprocessing
