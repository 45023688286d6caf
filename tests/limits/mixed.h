/* mixed.h: what the tests share that ask for a mixture of sizes in several sets of options. */
#pragma once

#include "../child.h"
#include "../heap_api.h"

/* Small mostly, up to `bytes_max` now and then. */
static inline size_t mixed_size(uint64_t *seed, size_t bytes_max) {
  uint64_t draw = test_random(seed) % 100;
  return draw < 90   ? 16 + test_random(seed) % 3000
         : draw < 99 ? 3000 + test_random(seed) % 300000
                     : 300000 + test_random(seed) % (bytes_max - 300000);
}

/* Runs work(set) in each set, "NAME=VALUE ...", in a process of its own, which calls `prepare` first and then starts
 * this program anew, as options are read when a program starts. */
static inline void mixed_in_sets(const char *const *sets, size_t count, char **argv, void (*prepare)(char **),
                                 void (*work)(const char *)) {
  const char *options = getenv("TEST_OPTIONS");
  if (options) {
    work(options);
    exit(0);
  }
  for (size_t i = 0; i < count; i++) {
    pid_t child = test_fork();
    if (child == 0) {
      static char names[256];
      snprintf(names, sizeof names, "%s", sets[i]);
      prepare(argv);
      for (char *name = strtok(names, " "); name; name = strtok(NULL, " "))
        CHECK(putenv(name) == 0);
      CHECK(setenv("TEST_OPTIONS", sets[i], 1) == 0);
      execv(argv[0], argv);
      _exit(2);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    test_skip_if(WIFEXITED(status) && WEXITSTATUS(status) == 77, "what is to run out cannot be used up here");
    CHECK_SAY(status == 0, "%s: status 0x%x", sets[i], status);
  }
}
