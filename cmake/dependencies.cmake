# Everything here ends up inside our libraries: programs that link trireme::trireme need none of it.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  # ccache only caches files that use a precompiled header with this sloppiness. In its depend mode, a file that is not in
  # the cache is preprocessed once instead of twice.
  set(CMAKE_CXX_COMPILER_LAUNCHER
    ${CMAKE_COMMAND} -E env CCACHE_SLOPPINESS=pch_defines,time_macros CCACHE_DEPEND=1 ${CCACHE_PROGRAM})
endif()

# src/base/fmt_library.cpp works with {fmt} 9. With another version every file compiles its own copy.
set(CMAKE_TRY_COMPILE_TARGET_TYPE STATIC_LIBRARY)
try_compile(TRIREME_FMT_COMPILED_ONCE ${CMAKE_BINARY_DIR}/fmt_check
  SOURCES ${CMAKE_SOURCE_DIR}/src/base/fmt_library.cpp CXX_STANDARD 20)
unset(CMAKE_TRY_COMPILE_TARGET_TYPE)

# The static library if it is installed, so that neither the wheel nor libtrireme.so needs a libssl at run time.
set(OPENSSL_USE_STATIC_LIBS TRUE)
find_package(OpenSSL QUIET)
if(NOT OPENSSL_FOUND)
  unset(OPENSSL_USE_STATIC_LIBS)
  find_package(OpenSSL REQUIRED)
endif()

add_library(trireme_dependencies INTERFACE)
target_include_directories(trireme_dependencies SYSTEM INTERFACE ${ASIO_INCLUDE_DIR} ${XXHASH_INCLUDE_DIR})
# ASIO_DISABLE_VISIBILITY: otherwise Asio's types are visible and are shared with any other Asio in the process.
target_compile_definitions(trireme_dependencies INTERFACE
  ASIO_STANDALONE ASIO_DISABLE_VISIBILITY ASIO_NO_DEPRECATED SPDLOG_FMT_EXTERNAL XXH_INLINE_ALL
  # Asio 1.22 only looks for Clang's coroutines in <experimental/coroutine>.
  $<$<CXX_COMPILER_ID:Clang>:ASIO_HAS_CO_AWAIT ASIO_HAS_STD_COROUTINE>)
target_link_libraries(trireme_dependencies INTERFACE
  Threads::Threads nlohmann_json::nlohmann_json
  OpenSSL::SSL OpenSSL::Crypto ${CMAKE_DL_LIBS})
# fmt and spdlog are found on the system's path: their CMake targets would add definitions or libraries.
if(NOT TRIREME_FMT_COMPILED_ONCE)
  target_compile_definitions(trireme_dependencies INTERFACE FMT_HEADER_ONLY)
endif()
