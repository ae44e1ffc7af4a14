#pragma once

#include <string>

#include "trireme/value.h"

namespace trireme::api::preprocessing {

// "['age']", "None", "0.5": as Python shows it, for describe(), which reads alike in both languages.
std::string python_text(const Value& value);

// "['age']", "null", "0.5": for errors, whose readers write C++.
std::string shown(const Value& value);

}  // namespace trireme::api::preprocessing
