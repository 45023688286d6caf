/* again.h: the calling program once more, with options of hakmem in its environment; what the test needs to know
 * of the library it is linked or loaded with. */
#pragma once

#include <dlfcn.h>

#include "../check.h"
#include "../heap_api.h"

#ifndef TEST_CORE
#include <hakmem/hakmem.h>
#endif

/* Starts this program again, once, with NAME=value for each pair; the list ends with NULL. */
static inline void test_again_with(char **argv, const char *const *pairs) {
  if (getenv("TEST_AGAIN"))
    return;
  if (TEST_EMULATED)
    test_skip("an emulator's process is another program");
  setenv("TEST_AGAIN", "1", 1);
  for (; pairs[0]; pairs += 2)
    setenv(pairs[0], pairs[1], 1);
  execv("/proc/self/exe", argv);
  test_skip("/proc/self/exe cannot be executed");
}

/* How a program begins that needs options: test_begin_with(argc, argv, NAME, value, ...). */
#define test_begin_with(argc, argv, ...)                                                                               \
  (test_again_with(argv, (const char *const[]){__VA_ARGS__, NULL}), test_begin(argc, argv))

/* Waits for the resident memory to fall by so much, but only so long. Returns by how much it fell. */
static inline long test_wait_gone_kib(long full_kib, long wanted_kib, double seconds) {
  double end = test_seconds() + seconds;
  while (full_kib - test_rss_kib() < wanted_kib && test_seconds() < end)
    test_pause_ms(100);
  return full_kib - test_rss_kib();
}

/* A function of the library: linked, or found in the preloaded one. */
#if defined(TEST_CORE) || defined(TEST_STATIC)
#define TEST_HAK(name) (name)
#else
#define TEST_HAK(name) ((__typeof__(&name))dlsym(RTLD_DEFAULT, #name))
#endif
