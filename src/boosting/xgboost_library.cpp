#include "boosting/xgboost_library.h"

#include <stdexcept>

#include "boosting/shared_library.h"
#include "trireme/config.h"

namespace trireme::boosting {
namespace {

#ifndef TRIREME_XGBOOST_LIBRARY_PATH
#define TRIREME_XGBOOST_LIBRARY_PATH nullptr
#endif
constexpr LibraryPlaces kXgboostPlaces{"XGBoost", "TRIREME_XGBOOST_LIBRARY", TRIREME_XGBOOST_LIBRARY_PATH,
                                       "libxgboost.so", "xgboost-cpu"};

}  // namespace

XgboostLibrary XgboostLibrary::load(const std::string& path) {
  void* const opened = open_library(path, kXgboostPlaces);
  XgboostLibrary library;
#define TRIREME_XGBOOST_LOAD(result, name, parameters) \
  library.name = reinterpret_cast<result(*) parameters>(function_of(opened, #name, kXgboostPlaces));
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
