#pragma once

#include <string>

namespace trireme::boosting {

// Where a boosting library can be.
struct LibraryPlaces {
  const char* library;   // "XGBoost"
  const char* variable;  // the environment variable with its path
  const char* built;     // the path found when Trireme was built; nullptr: none
  const char* file;      // on the loader's path
  const char* package;   // the pip package that contains it
};

// Opens the library at `given`, or, if that is empty, at the first of these places. Never closed: it may have threads.
// Throws ConfigError.
void* open_library(const std::string& given, const LibraryPlaces& places);

// The address of a function; throws ConfigError if the library does not have it.
void* function_of(void* library, const char* name, const LibraryPlaces& places);

}  // namespace trireme::boosting
