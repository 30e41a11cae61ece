# `cmake --install` and find_package(tandem).
include(CMakePackageConfigHelpers)

install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/ DESTINATION ${CMAKE_INSTALL_INCLUDEDIR})
install(DIRECTORY ${PROJECT_SOURCE_DIR}/fortran DESTINATION ${CMAKE_INSTALL_DATADIR}/tandem)
install(FILES ${PROJECT_SOURCE_DIR}/cmake/TandemFortran.cmake DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
file(RELATIVE_PATH TANDEM_PC_PREFIX /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(${PROJECT_SOURCE_DIR}/cmake/tandem_c.pc.in tandem_c.pc @ONLY)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandem_c.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
get_property(components GLOBAL PROPERTY TANDEM_COMPONENTS)
configure_package_config_file(${PROJECT_SOURCE_DIR}/cmake/tandemConfig.cmake.in tandemConfig.cmake
                              INSTALL_DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem
                              PATH_VARS CMAKE_INSTALL_LIBDIR CMAKE_INSTALL_DATADIR)
write_basic_package_version_file(tandemConfigVersion.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${CMAKE_CURRENT_BINARY_DIR}/tandemConfig.cmake ${CMAKE_CURRENT_BINARY_DIR}/tandemConfigVersion.cmake
        DESTINATION ${CMAKE_INSTALL_LIBDIR}/cmake/tandem)
