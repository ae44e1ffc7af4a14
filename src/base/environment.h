#pragma once

#include <map>
#include <string>

namespace trireme::base {

// The environment of this process. No other thread may change it during the call.
std::map<std::string, std::string> environment();

}  // namespace trireme::base
