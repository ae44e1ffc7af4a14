#pragma once

#include <string>

#include "trireme/value.h"

namespace trireme::api::preprocessing {

// "['age']", "None", "0.5": Python's notation, for describe(), whose result is the same in both languages.
std::string python_text(const Value& value);

// "['age']", "null", "0.5": for errors in C++ programs.
std::string shown(const Value& value);

}  // namespace trireme::api::preprocessing
