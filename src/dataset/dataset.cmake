# trireme::data, linked to the Arrow that cmake/arrow.cmake found.
if(TARGET trireme_arrow_library)
  # The decoders of images are here because the core does not need libjpeg and libpng.
  file(GLOB TRIREME_DATA_SOURCES CONFIGURE_DEPENDS dataset/*.cpp formats/images/*.cpp)
  add_library(trireme_data SHARED ${TRIREME_DATA_SOURCES})
  add_library(trireme::data ALIAS trireme_data)
  add_library(trireme::arrow ALIAS trireme_data)  # its former name
  # Arrow is private: users of the library need its headers only for wrap().
  target_link_libraries(trireme_data PUBLIC trireme PRIVATE "$<BUILD_INTERFACE:trireme_arrow_library>")
  # It registers itself when it is loaded, so programs need it even if they use none of its symbols.
  target_link_options(trireme_data INTERFACE LINKER:--no-as-needed)
  target_precompile_headers(trireme_data PRIVATE <arrow/api.h> <arrow/c/bridge.h> <arrow/compute/api.h>
    <arrow/filesystem/filesystem.h> <functional> <memory> <string> <vector>)
  if(CMAKE_CXX_COMPILER_ID STREQUAL "GNU")
    target_compile_options(trireme_data PRIVATE -fpch-preprocess)
  endif()
  # Plans and format parsers of the core, which libtrireme.so exports to this library.
  target_include_directories(trireme_data PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
  target_compile_definitions(trireme_data PRIVATE FMT_HEADER_ONLY)
  set_target_properties(trireme_data PROPERTIES
    EXPORT_NAME data VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    INSTALL_RPATH_USE_LINK_PATH ON)

  # Optional: functions that need a missing library report it when they are called.
  find_package(JPEG QUIET)
  find_package(PNG QUIET)
  find_package(SQLite3 QUIET)
  find_path(STB_INCLUDE_DIR stb/stb_image.h)
  foreach(library JPEG PNG SQLite3)
    string(TOUPPER ${library} name)
    string(REPLACE "3" "" name ${name})
    if(${library}_FOUND)
      target_compile_definitions(trireme_data PRIVATE TRIREME_HAS_${name})
    else()
      message(STATUS "${library} not found: C++ datasets are built without it (its package: tools/install_packages.sh)")
    endif()
  endforeach()
  if(STB_INCLUDE_DIR)
    target_compile_definitions(trireme_data PRIVATE TRIREME_HAS_STB)
    target_include_directories(trireme_data SYSTEM PRIVATE ${STB_INCLUDE_DIR})
  endif()
  target_link_libraries(trireme_data PRIVATE "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:JPEG::JPEG>>"
    "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:PNG::PNG>>"
    "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:SQLite::SQLite3>>")
else()
  message(STATUS "Arrow not found: trireme::data is not built (pip install pyarrow, or set Arrow_DIR, to build it)")
endif()
