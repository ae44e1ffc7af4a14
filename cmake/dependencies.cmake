# Everything here ends up inside our libraries: programs that link trireme::trireme need none of it.
find_package(Threads REQUIRED)
find_package(nlohmann_json REQUIRED)
find_package(fmt REQUIRED)
find_package(spdlog REQUIRED)
find_path(ASIO_INCLUDE_DIR asio.hpp REQUIRED)
find_path(XXHASH_INCLUDE_DIR xxhash.h REQUIRED)
find_program(CCACHE_PROGRAM ccache)
if(CCACHE_PROGRAM AND NOT CMAKE_CXX_COMPILER_LAUNCHER)
  set(CMAKE_CXX_COMPILER_LAUNCHER ${CCACHE_PROGRAM})
endif()

# The static one where there is one, so that neither the wheel nor libtrireme.so asks for a libssl of its own.
set(OPENSSL_USE_STATIC_LIBS TRUE)
find_package(OpenSSL QUIET)
if(NOT OPENSSL_FOUND)
  unset(OPENSSL_USE_STATIC_LIBS)
  find_package(OpenSSL REQUIRED)
endif()

add_library(trireme_dependencies INTERFACE)
target_include_directories(trireme_dependencies SYSTEM INTERFACE ${ASIO_INCLUDE_DIR} ${XXHASH_INCLUDE_DIR})
# ASIO_DISABLE_VISIBILITY: asio marks its types visible otherwise, and they would be shared with any other asio in the process.
target_compile_definitions(trireme_dependencies INTERFACE
  ASIO_STANDALONE ASIO_DISABLE_VISIBILITY ASIO_NO_DEPRECATED FMT_HEADER_ONLY SPDLOG_FMT_EXTERNAL XXH_INLINE_ALL)
target_link_libraries(trireme_dependencies INTERFACE
  Threads::Threads nlohmann_json::nlohmann_json fmt::fmt-header-only spdlog::spdlog_header_only
  OpenSSL::SSL OpenSSL::Crypto ${CMAKE_DL_LIBS})
