/* Under a limit on memory a mixture of sizes is served: what is asked for comes to 60 % of the limit at most, and libc's
 * malloc refuses some of that as well. In every set of options, each in a process of its own.
 *     mixture as|data    RLIMIT_AS, RLIMIT_DATA
 */
#include <sys/resource.h>

#include "../check.h"
#include "../child.h"
#include "../heap_api.h"

#define MIB ((size_t)1 << 20)
#define LIMIT_BYTES (96 * MIB)
#define LIVE_BYTES_MAX (LIMIT_BYTES / 100 * LIVE_PERCENT)
#define LIVE_PERCENT 55
#define PLACES 20000
#define REFUSALS_PER_MILLION 200 /* one now and then: memory in pieces */

static const char *const option_sets[][2] = {
    {"HAKMEM_PROFILE", "balanced"}, {"HAKMEM_PROFILE", "speed"}, {"HAKMEM_PROFILE", "lean"},
    {"HAKMEM_COUNT", "1"},          {"HAKMEM_LIVE", "1"},        {"HAKMEM_POLICY", "evolving"},
    {"HAKMEM_HUGE", "off"},         {"HAKMEM_HUGE", "all"},      {"HAKMEM_BACKGROUND", "off"},
    {"HAKMEM_PURGE", "free"},       {"HAKMEM_PURGE", "off"},     {"HAKMEM_HEAP_PROFILE", "on"},
};
#define OPTION_SETS (sizeof option_sets / sizeof option_sets[0])

static struct place {
  char *block;
  size_t size;
} places[PLACES];

static size_t drop(struct place *place) {
  size_t size = place->block ? place->size : 0;
  t_free(place->block);
  place->block = NULL;
  return size;
}

static size_t random_size(uint64_t *seed) {
  uint64_t draw = test_random(seed) % 100;
  return draw < 90   ? 16 + test_random(seed) % 3000
         : draw < 99 ? 3000 + test_random(seed) % 300000
                     : 300000 + test_random(seed) % 5000000;
}

static void work(const char *options) {
  uint64_t seed = test_seed;
  size_t live = 0, refusals = 0, requests = 0, peak = 0;
  for (long step = test_rounds(60000, 20); step > 0; step--) {
    unsigned i = (unsigned)(test_random(&seed) % PLACES);
    size_t size = random_size(&seed), dropped = drop(&places[i]);
    live -= dropped;
    if (dropped)
      continue;
    while (live + size > LIVE_BYTES_MAX) {
      i = (i + 1) % PLACES;
      live -= drop(&places[i]);
    }
    requests++;
    if ((places[i].block = t_malloc(size)) == NULL) {
      CHECK(errno == ENOMEM);
      refusals++;
      continue;
    }
    memset(places[i].block, 1, size);
    places[i].size = size;
    live += size;
    peak = live > peak ? live : peak;
  }
  printf("mixture %s: %zu of %zu refused, at most %zu %% of the limit live\n", options, refusals, requests,
         peak * 100 / LIMIT_BYTES);
  fflush(stdout);
  CHECK_SAY(refusals * 1000000 <= requests * REFUSALS_PER_MILLION, "%s: %zu of %zu refused, of %zu MiB at most",
            options, refusals, requests, LIVE_BYTES_MAX / MIB);
  CHECK_SAY(peak > LIVE_BYTES_MAX / 10 * 9, "%s: %zu bytes", options, peak);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
  if (TEST_SANITIZED)
    test_skip("a sanitizer's shadow does not fit under a limit");
  const char *options = getenv("TEST_OPTIONS");
  if (options) {
    work(options);
    return 0;
  }
  for (size_t i = 0; i < OPTION_SETS; i++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
      CHECK(setrlimit(strcmp(argv[1], "as") == 0 ? RLIMIT_AS : RLIMIT_DATA, &limit) == 0);
      CHECK(setenv(option_sets[i][0], option_sets[i][1], 1) == 0);
      CHECK(setenv("TEST_OPTIONS", option_sets[i][0], 1) == 0);
      execv(argv[0], argv);
      _exit(2);
    }
    int status = 0;
    CHECK(waitpid(child, &status, 0) == child);
    CHECK_SAY(status == 0, "%s=%s: status 0x%x", option_sets[i][0], option_sets[i][1], status);
  }
  return 0;
}
