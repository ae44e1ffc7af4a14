#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "data/arrow_c.h"

// The functions of lib_lightgbm that are needed, loaded at run time: neither its header nor the library itself is
// needed to build, and the library of the pip package is enough.

namespace trireme::boosting {

// LightGBM's types of numbers.
constexpr int kLightgbmFloat32 = 0;
constexpr int kLightgbmFloat64 = 1;
constexpr int kLightgbmInt32 = 2;

#define TRIREME_LIGHTGBM_FUNCTIONS(FUNCTION)                                                                         \
  FUNCTION(const char*, LGBM_GetLastError, ())                                                                       \
  FUNCTION(int, LGBM_RegisterLogCallback, (void (*)(const char*)))                                                   \
  FUNCTION(int, LGBM_NetworkInit, (const char* machines, int port, int timeout, int num_machines))                   \
  FUNCTION(int, LGBM_NetworkFree, ())                                                                                \
  FUNCTION(int, LGBM_GetSampleCount, (std::int32_t rows, const char* parameters, int* out))                          \
  FUNCTION(int, LGBM_SampleIndices, (std::int32_t rows, const char* parameters, void* out, std::int32_t* out_count)) \
  FUNCTION(int, LGBM_DatasetCreateFromSampledColumn,                                                                 \
           (double** values, int** indices, std::int32_t columns, const int* counts, std::int32_t sampled,           \
            std::int32_t rows, std::int64_t all_rows, const char* parameters, void** out))                           \
  FUNCTION(int, LGBM_DatasetCreateByReference, (void* reference, std::int64_t rows, void** out))                     \
  FUNCTION(int, LGBM_DatasetPushRows,                                                                                \
           (void*, const void* data, int type, std::int32_t rows, std::int32_t columns, std::int32_t first))         \
  FUNCTION(int, LGBM_DatasetSetField, (void*, const char* field, const void* data, int size, int type))              \
  FUNCTION(int, LGBM_DatasetSetFeatureNames, (void*, const char** names, int size))                                  \
  FUNCTION(int, LGBM_DatasetFree, (void*))                                                                           \
  FUNCTION(int, LGBM_BoosterCreate, (void* dataset, const char* parameters, void** out))                             \
  FUNCTION(int, LGBM_BoosterCreateFromModelfile, (const char* path, int* out_rounds, void** out))                    \
  FUNCTION(int, LGBM_BoosterFree, (void*))                                                                           \
  FUNCTION(int, LGBM_BoosterMerge, (void*, void* other))                                                             \
  FUNCTION(int, LGBM_BoosterAddValidData, (void*, void* dataset))                                                    \
  FUNCTION(int, LGBM_BoosterResetParameter, (void*, const char* parameters))                                         \
  FUNCTION(int, LGBM_BoosterUpdateOneIter, (void*, int* out_finished))                                               \
  FUNCTION(int, LGBM_BoosterGetCurrentIteration, (void*, int* out))                                                  \
  FUNCTION(int, LGBM_BoosterGetEvalCounts, (void*, int* out))                                                        \
  FUNCTION(int, LGBM_BoosterGetEvalNames,                                                                            \
           (void*, int size, int* out_size, std::size_t buffer, std::size_t* out_buffer, char** out))                \
  FUNCTION(int, LGBM_BoosterGetEval, (void*, int dataset, int* out_size, double* out))                               \
  FUNCTION(int, LGBM_BoosterCalcNumPredict, (void*, int rows, int kind, int first, int count, std::int64_t* out))    \
  FUNCTION(int, LGBM_BoosterPredictForMat,                                                                           \
           (void*, const void* data, int type, std::int32_t rows, std::int32_t columns, int row_major, int kind,     \
            int first, int count, const char* parameters, std::int64_t* out_size, double* out))                      \
  FUNCTION(int, LGBM_BoosterSaveModel, (void*, int first, int count, int importance, const char* path))

struct LightgbmLibrary {
#define TRIREME_LIGHTGBM_MEMBER(result, name, parameters) result(*name) parameters = nullptr;
  TRIREME_LIGHTGBM_FUNCTIONS(TRIREME_LIGHTGBM_MEMBER)
#undef TRIREME_LIGHTGBM_MEMBER
  // nullptr before version 4.7.
  int (*LGBM_DatasetCreateFromArrowStream)(ArrowArrayStream*, const char* parameters, void* reference,
                                           void** out) = nullptr;

  // Throws ConfigError if the library cannot be loaded. `path`: empty: the default.
  static LightgbmLibrary load(const std::string& path);
  // Throws std::runtime_error with LightGBM's message.
  void check(int code) const;
};

}  // namespace trireme::boosting
