#include "boosting/lightgbm_library.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstring>
#include <stdexcept>

#include "boosting/shared_library.h"

namespace trireme::boosting {
namespace {

#ifndef TRIREME_LIGHTGBM_LIBRARY_PATH
#define TRIREME_LIGHTGBM_LIBRARY_PATH nullptr
#endif
constexpr LibraryPlaces kLightgbmPlaces{"LightGBM", "TRIREME_LIGHTGBM_LIBRARY", TRIREME_LIGHTGBM_LIBRARY_PATH,
                                        "lib_lightgbm.so", "lightgbm"};

// LightGBM ignores `verbosity` where it connects the workers.
void log_warnings(const char* text) {
  if (std::strstr(text, "[Info]") == nullptr) std::fputs(text, stderr);
}

}  // namespace

LightgbmLibrary LightgbmLibrary::load(const std::string& path) {
  void* const opened = open_library(path, kLightgbmPlaces);
  LightgbmLibrary library;
#define TRIREME_LIGHTGBM_LOAD(result, name, parameters) \
  library.name = reinterpret_cast<result(*) parameters>(function_of(opened, #name, kLightgbmPlaces));
  TRIREME_LIGHTGBM_FUNCTIONS(TRIREME_LIGHTGBM_LOAD)
#undef TRIREME_LIGHTGBM_LOAD
  library.LGBM_DatasetCreateFromArrowStream = reinterpret_cast<decltype(library.LGBM_DatasetCreateFromArrowStream)>(
      ::dlsym(opened, "LGBM_DatasetCreateFromArrowStream"));
  library.check(library.LGBM_RegisterLogCallback(&log_warnings));
  return library;
}

void LightgbmLibrary::check(int code) const {
  if (code != 0) throw std::runtime_error(std::string("LightGBMError: ") + LGBM_GetLastError());
}

}  // namespace trireme::boosting
