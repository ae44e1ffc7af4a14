#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <vector>

namespace trireme::worker {

using Address = std::uintptr_t;

struct Symbol {
  std::string function;  // demangled; empty if the file has no name for it
  std::string file;      // library or program; empty for code generated at run time
  Address offset = 0;    // in that file
};

// Names for addresses of this process, from the symbol tables of the files. Not dladdr(): it waits for the loader's
// lock, which a thread of the user may hold while it hangs in dlopen(), and it does not know static functions.
std::map<Address, Symbol> symbolize(std::vector<Address> addresses);

// "ns::f(int, char) const" -> "ns::f".
std::string without_parameters(const std::string& function);

}  // namespace trireme::worker
