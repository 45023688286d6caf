/* A limit of many GiB, and how much of it is held. First argument: `as`, a limit of the system, of which a third is
 * held; `own`, the library's own, of which half is. Second argument `near`: less than 4 GiB are left. */
#pragma once

#include <sys/resource.h>

#include "../heap_api.h"
#include "../reclaim/again.h"

#define LIMIT_GIB 48
#define NEAR_GIB 20
#define OWN_MIB "32768"
#define OWN_NEAR_MIB "20480"
#define HELD_GIB 17
#define GIB ((size_t)1 << 30)

static char *held[HELD_GIB];

/* The library asks for the limit at its start. */
static void limit_of_system(size_t bytes) {
  struct rlimit limit;
  CHECK(getrlimit(RLIMIT_AS, &limit) == 0);
  test_skip_if(limit.rlim_cur != RLIM_INFINITY && limit.rlim_cur < bytes, "a lower limit is in force");
  limit.rlim_cur = bytes;
  CHECK(setrlimit(RLIMIT_AS, &limit) == 0);
}

static void hold(int argc, char **argv) {
  int is_own = argc > 1 && strcmp(argv[1], "own") == 0, is_near = argc > 2 && strcmp(argv[2], "near") == 0;
  const char *const none[] = {NULL};
  const char *const own[] = {"HAKMEM_LIMIT_MB", is_near ? OWN_NEAR_MIB : OWN_MIB, NULL};
  if (!is_own)
    limit_of_system((is_near ? NEAR_GIB : LIMIT_GIB) * GIB);
  test_again_with(argv, is_own ? own : none);
  test_begin(argc, argv);
  for (int i = 0; i < HELD_GIB; i++) {
    held[i] = t_malloc(GIB); /* address space only: nothing is written */
    test_skip_if(held[i] == NULL, "the system commits too little memory");
  }
}

static void let_go(void) { t_free_all(held, HELD_GIB); }
