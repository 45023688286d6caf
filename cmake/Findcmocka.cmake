# The test library, as target cmocka::cmocka: the installed one, or, for the builds that no package
# serves (cross, musl), from its source in build/deps/cmocka, where `hak test` puts it.
find_path(cmocka_INCLUDE_DIR cmocka.h)
find_library(cmocka_LIBRARY cmocka)
mark_as_advanced(cmocka_INCLUDE_DIR cmocka_LIBRARY)
set(cmocka_source ${CMAKE_SOURCE_DIR}/build/deps/cmocka)
if(cmocka_INCLUDE_DIR AND cmocka_LIBRARY)
  add_library(cmocka::cmocka UNKNOWN IMPORTED)
  set_target_properties(cmocka::cmocka PROPERTIES
    IMPORTED_LOCATION ${cmocka_LIBRARY} INTERFACE_INCLUDE_DIRECTORIES ${cmocka_INCLUDE_DIR})
elseif(EXISTS ${cmocka_source}/src/cmocka.c)
  add_library(cmocka_from_source STATIC EXCLUDE_FROM_ALL ${cmocka_source}/src/cmocka.c)
  target_include_directories(cmocka_from_source SYSTEM PUBLIC ${cmocka_source}/include)
  target_compile_options(cmocka_from_source PRIVATE -w)
  target_compile_definitions(cmocka_from_source PRIVATE
    _GNU_SOURCE HAVE_CLOCK_GETTIME=1 HAVE_STRUCT_TIMESPEC=1 HAVE_CLOCK_REALTIME=1 HAVE_GCC_THREAD_LOCAL_STORAGE=1
    HAVE_INTTYPES_H=1 HAVE_MALLOC_H=1 HAVE_SIGNAL_H=1 HAVE_STDINT_H=1 HAVE_STRINGS_H=1 HAVE_STRING_H=1 HAVE_TIME_H=1
    HAVE_UNISTD_H=1 HAVE_STDLIB_H=1 HAVE_STDIO_H=1 HAVE_SETJMP_H=1 HAVE_SNPRINTF=1 HAVE_VSNPRINTF=1 HAVE_STRSIGNAL=1)
  add_library(cmocka::cmocka ALIAS cmocka_from_source)
endif()
if(TARGET cmocka::cmocka)
  set(cmocka_FOUND TRUE)
endif()
