#pragma once

#include <cstdint>
#include <string>

// The functions of libxgboost that are needed, loaded at run time: neither its header nor the library itself is needed
// to build, and the library of the pip package is enough.

namespace trireme::boosting {

using Handle = void*;
using Reset = void(Handle);
using Next = int(Handle);

#define TRIREME_XGBOOST_FUNCTIONS(FUNCTION)                                                                       \
  FUNCTION(int, XGTrackerCreate, (const char* config, Handle* out))                                               \
  FUNCTION(int, XGTrackerRun, (Handle, const char* config))                                                       \
  FUNCTION(int, XGTrackerWorkerArgs, (Handle, const char** out))                                                  \
  FUNCTION(int, XGTrackerWaitFor, (Handle, const char* config))                                                   \
  FUNCTION(int, XGTrackerFree, (Handle))                                                                          \
  FUNCTION(int, XGCommunicatorInit, (const char* config))                                                         \
  FUNCTION(int, XGCommunicatorFinalize, ())                                                                       \
  FUNCTION(int, XGProxyDMatrixCreate, (Handle * out))                                                             \
  FUNCTION(int, XGProxyDMatrixSetDataDense, (Handle, const char* array))                                          \
  FUNCTION(int, XGProxyDMatrixSetDataColumnar, (Handle, const char* arrays))                                      \
  FUNCTION(int, XGDMatrixSetInfoFromInterface, (Handle, const char* field, const char* array))                    \
  FUNCTION(int, XGDMatrixSetStrFeatureInfo, (Handle, const char* field, const char** values, std::uint64_t size)) \
  FUNCTION(int, XGDMatrixFree, (Handle))                                                                          \
  FUNCTION(int, XGDMatrixCreateFromCallback,                                                                      \
           (Handle iterator, Handle proxy, Reset*, Next*, const char* config, Handle* out))                       \
  FUNCTION(int, XGQuantileDMatrixCreateFromCallback,                                                              \
           (Handle iterator, Handle proxy, Handle reference, Reset*, Next*, const char* config, Handle* out))     \
  FUNCTION(int, XGExtMemQuantileDMatrixCreateFromCallback,                                                        \
           (Handle iterator, Handle proxy, Handle reference, Reset*, Next*, const char* config, Handle* out))     \
  FUNCTION(int, XGBoosterCreate, (const Handle* matrices, std::uint64_t size, Handle* out))                       \
  FUNCTION(int, XGBoosterFree, (Handle))                                                                          \
  FUNCTION(int, XGBoosterSetParam, (Handle, const char* name, const char* value))                                 \
  FUNCTION(int, XGBoosterSetStrFeatureInfo, (Handle, const char* field, const char** values, std::uint64_t size)) \
  FUNCTION(int, XGBoosterSetAttr, (Handle, const char* name, const char* value))                                  \
  FUNCTION(int, XGBoosterBoostedRounds, (Handle, int* out))                                                       \
  FUNCTION(int, XGBoosterUpdateOneIter, (Handle, int round, Handle matrix))                                       \
  FUNCTION(int, XGBoosterEvalOneIter,                                                                             \
           (Handle, int round, Handle* matrices, const char** names, std::uint64_t size, const char** out))       \
  FUNCTION(int, XGBoosterSaveModel, (Handle, const char* path))                                                   \
  FUNCTION(int, XGBoosterLoadModel, (Handle, const char* path))                                                   \
  FUNCTION(int, XGBoosterSaveModelToBuffer, (Handle, const char* config, std::uint64_t* size, const char** out))  \
  FUNCTION(int, XGBoosterLoadModelFromBuffer, (Handle, const void* data, std::uint64_t size))                     \
  FUNCTION(const char*, XGBGetLastError, ())                                                                      \
  FUNCTION(void, XGBoostVersion, (int* major, int* minor, int* patch))

struct XgboostLibrary {
#define TRIREME_XGBOOST_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  TRIREME_XGBOOST_FUNCTIONS(TRIREME_XGBOOST_MEMBER)
#undef TRIREME_XGBOOST_MEMBER

  // Throws ConfigError if the library cannot be loaded or has another version. `path`: empty: the default.
  static XgboostLibrary load(const std::string& path);
  // Throws std::runtime_error with XGBoost's message.
  void check(int code) const;
};

}  // namespace trireme::boosting
