#include "boosting/shared_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <vector>

#include "trireme/config.h"

namespace trireme::boosting {

void* open_library(const std::string& given, const LibraryPlaces& places) {
  std::vector<std::string> paths;
  if (!given.empty()) {
    paths = {given};
  } else if (const char* variable = std::getenv(places.variable)) {
    paths = {variable};
  } else {
    if (places.built != nullptr) paths.emplace_back(places.built);
    paths.emplace_back(places.file);
  }
  std::string errors;
  for (const auto& path : paths) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    errors += std::string("\n  ") + ::dlerror();
  }
  throw ConfigError(std::string(places.library) + "'s library cannot be loaded; install it (pip install " +
                    places.package + ") and set " + places.variable + " to its " + places.file + ":" + errors);
}

void* function_of(void* library, const char* name, const LibraryPlaces& places) {
  void* const found = ::dlsym(library, name);
  if (found == nullptr) {
    throw ConfigError(std::string(places.library) + "'s library has no function " + name +
                      ": it is too old; install a newer version of " + places.package);
  }
  return found;
}

}  // namespace trireme::boosting
