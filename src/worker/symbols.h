#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::worker {

using Address = std::uintptr_t;

struct Symbol {
  std::string function;  // demangled; empty where the file has no name for it
  std::string file;      // of the library or the program; empty for code made at run time
  Address offset = 0;    // in that file
};

// Names for addresses of this process, from the symbol tables of the files. Not dladdr(): that waits for the loader's
// lock, which a thread of the user may hold for as long as it hangs in dlopen(), and knows no static function.
std::map<Address, Symbol> symbolize(std::vector<Address> addresses);

// "ns::f(int, char) const" -> "ns::f".
std::string without_parameters(const std::string& function);

}  // namespace trireme::worker
