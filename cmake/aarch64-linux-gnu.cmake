# Cross build for 64-bit ARM; programs run under user-mode QEMU with the cross compiler's own libc.
set(CMAKE_SYSTEM_NAME Linux)
set(CMAKE_SYSTEM_PROCESSOR aarch64)
set(CMAKE_C_COMPILER aarch64-linux-gnu-gcc)
# The operators are built where a C++ cross compiler is there.
find_program(HAKMEM_CROSS_CXX aarch64-linux-gnu-g++)
if(HAKMEM_CROSS_CXX)
  set(CMAKE_CXX_COMPILER ${HAKMEM_CROSS_CXX})
else()
  set(HAKMEM_CXX OFF CACHE BOOL "" FORCE)
endif()
set(CMAKE_CROSSCOMPILING_EMULATOR qemu-aarch64)
# Programs name the libc that they run with. QEMU's option -L would show it, too, but as a part of / and /usr themselves,
# and then a program that walks a path step by step does not get to /tmp.
set(HAKMEM_CROSS_LIB /usr/aarch64-linux-gnu/lib)
set(CMAKE_EXE_LINKER_FLAGS_INIT
  "-Wl,--dynamic-linker=${HAKMEM_CROSS_LIB}/ld-linux-aarch64.so.1,--disable-new-dtags,-rpath=${HAKMEM_CROSS_LIB}")
set(CMAKE_FIND_ROOT_PATH /usr/aarch64-linux-gnu)
set(CMAKE_FIND_ROOT_PATH_MODE_PROGRAM NEVER)
set(CMAKE_FIND_ROOT_PATH_MODE_LIBRARY ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_INCLUDE ONLY)
set(CMAKE_FIND_ROOT_PATH_MODE_PACKAGE ONLY)
