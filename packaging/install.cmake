# What is installed beside the libraries (src/CMakeLists.txt) and the tools (tools/CMakeLists.txt).

install(DIRECTORY include/hakmem DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} FILES_MATCHING PATTERN "*.h" PATTERN "*.hpp")
install(PROGRAMS hak DESTINATION ${CMAKE_INSTALL_BINDIR})
# `hak run` alone runs it.
if(TARGET random_mixed)
  install(TARGETS random_mixed DESTINATION ${CMAKE_INSTALL_LIBEXECDIR}/hakmem)
endif()

# find_package(hakmem): the targets hakmem::hakmem, hakmem::static and hakmem::core.
include(CMakePackageConfigHelpers)
set(hakmem_cmake_folder ${CMAKE_INSTALL_LIBDIR}/cmake/hakmem)
install(EXPORT hakmem FILE hakmem-targets.cmake NAMESPACE hakmem:: DESTINATION ${hakmem_cmake_folder})
write_basic_package_version_file(${PROJECT_BINARY_DIR}/hakmem-config-version.cmake COMPATIBILITY SameMinorVersion)
install(FILES packaging/hakmem-config.cmake ${PROJECT_BINARY_DIR}/hakmem-config-version.cmake DESTINATION ${hakmem_cmake_folder})

# Relative to itself, so that an installed tree may be moved.
file(RELATIVE_PATH hakmem_prefix /${CMAKE_INSTALL_LIBDIR}/pkgconfig /)
configure_file(packaging/hakmem.pc.in hakmem.pc @ONLY)
install(FILES ${PROJECT_BINARY_DIR}/hakmem.pc DESTINATION ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# The pages of the manual are made from what hak, the tools, the header and the documents say.
function(hakmem_page page)
  set(file ${PROJECT_BINARY_DIR}/man/${page})
  add_custom_command(OUTPUT ${file}
    COMMAND ${PROJECT_SOURCE_DIR}/packaging/manual.sh ${PROJECT_SOURCE_DIR} ${page} ${ARGN} > ${file}
    DEPENDS packaging/manual.sh hak include/hakmem/hakmem.h README.md docs/options.md ${ARGN} VERBATIM)
  set_property(GLOBAL APPEND PROPERTY hakmem_pages ${file})
  string(REGEX MATCH "[0-9]$" section ${page})
  install(FILES ${file} DESTINATION ${CMAKE_INSTALL_MANDIR}/man${section})
endfunction()
file(MAKE_DIRECTORY ${PROJECT_BINARY_DIR}/man)
hakmem_page(hak.1)
hakmem_page(hakmem.7)
hakmem_page(hakmem.h.3)
if(NOT CMAKE_CROSSCOMPILING)
  get_property(hakmem_tools GLOBAL PROPERTY hakmem_tools)
  foreach(tool ${hakmem_tools})
    hakmem_page(${tool}.1 $<TARGET_FILE:${tool}>)
  endforeach()
endif()
get_property(hakmem_pages GLOBAL PROPERTY hakmem_pages)
add_custom_target(hakmem_manual ALL DEPENDS ${hakmem_pages})

install(FILES packaging/completions/hak.bash RENAME hak DESTINATION ${CMAKE_INSTALL_DATADIR}/bash-completion/completions)
install(FILES packaging/completions/hak.zsh RENAME _hak DESTINATION ${CMAKE_INSTALL_DATADIR}/zsh/site-functions)
