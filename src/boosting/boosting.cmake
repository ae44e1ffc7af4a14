# trireme::boosting. It loads XGBoost's library at run time; the one of the pip package is the default if it is found.
add_library(trireme_boosting SHARED boosting/connections.cpp boosting/matrix_rows.cpp boosting/xgboost_library.cpp
  boosting/xgboost_matrix.cpp boosting/xgboost_trainer.cpp)
add_library(trireme::boosting ALIAS trireme_boosting)
target_include_directories(trireme_boosting PRIVATE ${CMAKE_CURRENT_SOURCE_DIR})
target_link_libraries(trireme_boosting PUBLIC trireme PRIVATE trireme_warnings ${CMAKE_DL_LIBS})
set_target_properties(trireme_boosting PROPERTIES
  EXPORT_NAME boosting VERSION ${PROJECT_VERSION} SOVERSION ${PROJECT_VERSION_MAJOR})
if(Python_EXECUTABLE)
  execute_process(COMMAND "${Python_EXECUTABLE}" -c "import sysconfig; print(sysconfig.get_path('platlib'))"
    OUTPUT_VARIABLE trireme_site_packages OUTPUT_STRIP_TRAILING_WHITESPACE)
  find_file(TRIREME_LIBXGBOOST libxgboost.so PATHS ${trireme_site_packages}/xgboost/lib NO_DEFAULT_PATH)
endif()
if(TRIREME_LIBXGBOOST)
  target_compile_definitions(trireme_boosting PRIVATE TRIREME_XGBOOST_LIBRARY_PATH="${TRIREME_LIBXGBOOST}")
endif()
