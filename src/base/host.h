#pragma once

#include <string>

namespace trireme::base {

// This machine's name, as people and other machines know it; "localhost" where it has none.
std::string host_name();

}  // namespace trireme::base
