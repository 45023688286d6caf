# What is installed beside the libraries (src/CMakeLists.txt) and the tools (tools/CMakeLists.txt).

install(DIRECTORY include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h")
install(PROGRAMS hak DESTINATION ${CMAKE_INSTALL_BINDIR})
# `hak run` alone runs it.
if(TARGET random_mixed)
  install(TARGETS random_mixed DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/hakmem)
endif()

# find_package(hakmem): the targets hakmem::hakmem, hakmem::static and hakmem::core.
include(CMakePackageConfigHelpers)
set(hakmem_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
install(EXPORT hakmem FILE hakmem-config.cmake NAMESPACE hakmem:: DESTINATION ${hakmem_cmake_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES ${PROJECT_BINARY_DIR}/hakmem-config-version.cmake DESTINATION ${hakmem_cmake_folder})

# Relative to itself, so that an installed tree may be moved.
file(RELATIVE_PATH hakmem_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(packaging/hakmem.pc.in hakmem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hakmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)
