# cmake --install build/release --prefix X: what C++ users need. The component "python" is what the wheel carries instead.
include(GNUInstallDirs)
include(CMakePackageConfigHelpers)

install(DIRECTORY include/trireme DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(TARGETS trireme EXPORT triremeTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(TARGETS trireme_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR})
install(FILES LICENSE DESTINATION ${CMAKE_INSTALL_DOCDIR})

set(TRIREME_PACKAGE_DIR ${CMAKE_INSTALL_LIBDIR}/cmake/trireme)
install(EXPORT triremeTargets NAMESPACE trireme:: DESTINATION ${TRIREME_PACKAGE_DIR})
configure_package_config_file(cmake/triremeConfig.cmake.in ${PROJECT_BINARY_DIR}/triremeConfig.cmake
  INSTALL_DESTINATION ${TRIREME_PACKAGE_DIR})
# Before 1.0 a minor version may change what a program sees.
write_basic_package_version_file(${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/triremeConfig.cmake ${PROJECT_BINARY_DIR}/triremeConfigVersion.cmake
  DESTINATION ${TRIREME_PACKAGE_DIR})

if(TARGET trireme_data)
  install(TARGETS trireme_data EXPORT trireme_dataTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT trireme_dataTargets NAMESPACE trireme:: DESTINATION ${TRIREME_PACKAGE_DIR})
endif()

install(TARGETS trireme_boosting EXPORT trireme_boostingTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
install(EXPORT trireme_boostingTargets NAMESPACE trireme:: DESTINATION ${TRIREME_PACKAGE_DIR})

if(TARGET trireme_torch)
  install(TARGETS trireme_torch EXPORT trireme_torchTargets LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR})
  install(EXPORT trireme_torchTargets NAMESPACE trireme:: DESTINATION ${TRIREME_PACKAGE_DIR})
endif()
