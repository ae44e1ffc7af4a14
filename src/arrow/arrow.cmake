# trireme::arrow, linked to the Arrow that cmake/arrow.cmake found.
if(TARGET trireme_arrow_library)
  add_library(trireme_arrow SHARED arrow/conditions.cpp arrow/file_source.cpp arrow/file_streams.cpp arrow/filesystem.cpp
    arrow/found_files.cpp arrow/images.cpp arrow/joined_tables.cpp arrow/json_lines.cpp arrow/kernels.cpp
    arrow/npy_values.cpp arrow/npy_writer.cpp arrow/numpy_files.cpp arrow/parquet_pages.cpp
    arrow/relational.cpp arrow/sample_values.cpp arrow/sql.cpp arrow/sqlite.cpp arrow/tables.cpp
    arrow/tensor_columns.cpp arrow/texts.cpp arrow/tfrecords.cpp arrow/value_columns.cpp arrow/webdataset.cpp
    arrow/writers.cpp arrow/written_files.cpp
    # Here and not in the core, which does without libjpeg and libpng.
    formats/images/image.cpp formats/images/jpeg.cpp formats/images/others.cpp formats/images/pixels.cpp
    formats/images/png.cpp)
  add_library(trireme::arrow ALIAS trireme_arrow)
  # Arrow is private: users of the library need its headers only for wrap().
  target_link_libraries(trireme_arrow PUBLIC trireme PRIVATE "$<BUILD_INTERFACE:trireme_arrow_library>")
  # The core's format parsers, which libtrireme.so exports to this library. Searched last: this folder has the same name
  # as Arrow's own.
  target_compile_options(trireme_arrow PRIVATE "SHELL:-idirafter ${CMAKE_CURRENT_SOURCE_DIR}")
  target_compile_definitions(trireme_arrow PRIVATE FMT_HEADER_ONLY)
  set_target_properties(trireme_arrow PROPERTIES
    EXPORT_NAME arrow VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR}
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
      target_compile_definitions(trireme_arrow PRIVATE TRIREME_HAS_${name})
    else()
      message(STATUS "${library} not found: C++ datasets are built without it (its package: tools/install_packages.sh)")
    endif()
  endforeach()
  if(STB_INCLUDE_DIR)
    target_compile_definitions(trireme_arrow PRIVATE TRIREME_HAS_STB)
    target_include_directories(trireme_arrow SYSTEM PRIVATE ${STB_INCLUDE_DIR})
  endif()
  target_link_libraries(trireme_arrow PRIVATE "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:JPEG::JPEG>>"
    "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:PNG::PNG>>"
    "$<BUILD_INTERFACE:$<TARGET_NAME_IF_EXISTS:SQLite::SQLite3>>")
else()
  message(STATUS "Arrow not found: trireme::arrow is not built (pip install pyarrow, or set Arrow_DIR, to build it)")
endif()
