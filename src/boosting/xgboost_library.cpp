#include "boosting/xgboost_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <stdexcept>
#include <vector>

#include "trireme/config.h"

namespace trireme::boosting {
namespace {

void* open_library(const std::string& given) {
  std::vector<std::string> paths;
  if (!given.empty()) {
    paths = {given};
  } else if (const char* variable = std::getenv("TRIREME_XGBOOST_LIBRARY")) {
    paths = {variable};
  } else {
#ifdef TRIREME_XGBOOST_LIBRARY_PATH
    paths = {TRIREME_XGBOOST_LIBRARY_PATH};
#endif
    paths.emplace_back("libxgboost.so");
  }
  std::string errors;
  for (const auto& path : paths) {
    if (void* library = ::dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) return library;
    errors += std::string("\n  ") + ::dlerror();
  }
  throw ConfigError(
      "XGBoost's library cannot be loaded; install it (pip install xgboost-cpu) and set TRIREME_XGBOOST_LIBRARY to "
      "its libxgboost.so:" +
      errors);
}

}  // namespace

XgboostLibrary XgboostLibrary::load(const std::string& path) {
  void* const opened = open_library(path);  // never closed: it may have threads
  XgboostLibrary library;
#define TRIREME_XGBOOST_LOAD(result, name, parameters)                                                               \
  library.name = reinterpret_cast<result(*) parameters>(::dlsym(opened, #name));                                     \
  if (library.name == nullptr) {                                                                                     \
    throw ConfigError("XGBoost's library has no function " #name ": it is older than 3.0; install a newer version"); \
  }
  TRIREME_XGBOOST_FUNCTIONS(TRIREME_XGBOOST_LOAD)
#undef TRIREME_XGBOOST_LOAD
  int major = 0, minor = 0, patch = 0;
  library.XGBoostVersion(&major, &minor, &patch);
  if (major != 3) {
    throw ConfigError("XGBoost " + std::to_string(major) + "." + std::to_string(minor) +
                      " is not supported: trireme::boosting needs version 3");
  }
  return library;
}

void XgboostLibrary::check(int code) const {
  if (code != 0) throw std::runtime_error(std::string("XGBoostError: ") + XGBGetLastError());
}

}  // namespace trireme::boosting
