# trireme::boosting. It loads the libraries of XGBoost and LightGBM at run time; those of the pip packages are the default
# if they are found.
# The core's library exports nothing of base/network.h.
file(GLOB TRIREME_BOOSTING_SOURCES CONFIGURE_DEPENDS boosting/*.cpp base/network.cpp)
add_library(trireme_boosting SHARED ${TRIREME_BOOSTING_SOURCES})
add_library(trireme::boosting ALIAS trireme_boosting)
target_include_directories(trireme_boosting PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(trireme_boosting PUBLIC trireme PRIVATE nlohmann_json::nlohmann_json trireme_warnings
  ${CMAKE_DL_LIBS})
set_target_properties(trireme_boosting PROPERTIES
  EXPORT_NAME boosting VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(Python_EXECUTABLE)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_path('platlib'))"
    OUTPUT_VARIABLE trireme_site_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_file(TRIREME_LIBXGBOOST libxgboost.so PATHS ${trireme_site_packages}/xgboost/lib NO_DEFAULT_PATH)
  find_file(TRIREME_LIBLIGHTGBM lib_lightgbm.so PATHS ${trireme_site_packages}/lightgbm/lib NO_DEFAULT_PATH)
endif()
if(TRIREME_LIBXGBOOST)
  target_compile_definitions(trireme_boosting PRIVATE TRIREME_XGBOOST_LIBRARY_PATH="${TRIREME_LIBXGBOOST}")
endif()
if(TRIREME_LIBLIGHTGBM)
  target_compile_definitions(trireme_boosting PRIVATE TRIREME_LIGHTGBM_LIBRARY_PATH="${TRIREME_LIBLIGHTGBM}")
endif()
