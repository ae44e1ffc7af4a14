# trireme::arrow, against the Arrow that cmake/arrow.cmake has found.
if(TARGET trireme_arrow_library)
  add_library(trireme_arrow SHARED arrow/filesystem.cpp arrow/found_files.cpp arrow/kernels.cpp arrow/relational.cpp
    arrow/tables.cpp arrow/texts.cpp arrow/writers.cpp)
  add_library(trireme::arrow ALIAS trireme_arrow)
  # Arrow stays inside: whoever uses the library needs its headers only for wrap().
  target_link_libraries(trireme_arrow PUBLIC trireme PRIVATE "$<BUILD_INTERFACE:trireme_arrow_library>")
  set_target_properties(trireme_arrow PROPERTIES
    EXPORT_NAME arrow VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
    INSTALL_RPATH_USE_LINK_PATH ON)
else()
  message(STATUS "Arrow was not found: trireme::arrow is left out (pip install pyarrow, or set Arrow_DIR, to have it)")
endif()
