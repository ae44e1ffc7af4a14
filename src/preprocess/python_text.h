#pragma once

#include <string>

#include "trireme/value.h"

namespace trireme::preprocess {

// "['age']", "None", "0.5": Python's notation, for describe() and for errors, which are the same in both languages.
std::string python_text(const Value& value);

}  // namespace trireme::preprocess
