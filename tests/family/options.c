/* hak_option_set and hak_option_get: names, values, errno values; they take effect, and are taken back. Linked, with
 * hakmem_core or the static library: the functions are called by their names. */
#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#include <hakmem/hakmem.h>

static void is(const char *name, const char *wanted) {
  char value[HAK_OPTION_BYTES];
  errno = 77;
  CHECK(hak_option_get(name, value, sizeof value) == 0);
  CHECK(errno == 77);
  CHECK_SAY(strcmp(value, wanted) == 0, "%s is %s, not %s", name, value, wanted);
}

static void set(const char *name, const char *value) {
  errno = 77;
  int error = hak_option_set(name, value);
  CHECK_SAY(error == 0 && errno == 77, "%s=%s: %d, errno %d", name, value ? value : "NULL", error, errno);
}

static void refused(const char *name, const char *value, int wanted) {
  char before[HAK_OPTION_BYTES] = "", after[HAK_OPTION_BYTES] = "";
  if (name)
    hak_option_get(name, before, sizeof before);
  int error = hak_option_set(name, value);
  CHECK_SAY(error == wanted, "%s=%s: %d, not %d", name ? name : "NULL", value ? value : "NULL", error, wanted);
  if (name)
    hak_option_get(name, after, sizeof after);
  CHECK(strcmp(before, after) == 0);
}

static void names_and_values(void) {
  char delay[HAK_OPTION_BYTES], lean[HAK_OPTION_BYTES], speed[HAK_OPTION_BYTES];
  CHECK(hak_option_get("purge_delay_ms", delay, sizeof delay) == 0);
  set("purge_delay_ms", "123");
  is("purge_delay_ms", "123");
  is("HAKMEM_PURGE_DELAY_MS", "123");
  set("HAKMEM_PURGE_DELAY_MS", NULL);
  is("purge_delay_ms", delay);
  set("profile", "lean");
  CHECK(hak_option_get("keep_mb", lean, sizeof lean) == 0);
  set("profile", "SPEED");
  is("profile", "speed");
  CHECK(hak_option_get("keep_mb", speed, sizeof speed) == 0);
  CHECK_SAY(strcmp(lean, speed) != 0, "keep_mb is %s in lean and in speed", lean);
  set("keep_mb", "77");
  is("keep_mb", "77");
  set("keep_mb", NULL);
  is("keep_mb", speed);
  set("profile", NULL);
  is("profile", "balanced");

  refused("no_such_option", "1", ENOENT);
  refused("", "1", ENOENT);
  refused(NULL, "1", ENOENT);
  refused("HAKMEM_SS_MEM_LEAN", "1", ENOENT);
  refused("keep_mb", "", EINVAL);
  refused("keep_mb", "-1", EINVAL);
  refused("keep_mb", "99999999999999999999999", EINVAL);
  refused("profile", "secure", EPERM);
  refused("prewarm", "on", EPERM);
  refused("prewarm", NULL, EPERM);
  refused("HAKMEM_CGROUP", "off", EPERM);

  char value[HAK_OPTION_BYTES] = "untouched";
  CHECK(hak_option_get("no_such_option", value, sizeof value) == ENOENT);
  CHECK(hak_option_get(NULL, value, sizeof value) == ENOENT);
  CHECK(hak_option_get("profile", value, strlen("balanced")) == ERANGE);
  CHECK(hak_option_get("profile", NULL, 0) == ERANGE);
  CHECK(strcmp(value, "untouched") == 0);
  CHECK(hak_option_get("profile", value, strlen("balanced") + 1) == 0);
  CHECK(strcmp(value, "balanced") == 0);
}

/* Neither memory nor system calls. */
static void costs_nothing(void) {
  struct hak_stats before, after;
  char value[HAK_OPTION_BYTES];
  hak_stats_get(&before);
  for (int i = 0; i < 1000; i++) {
    CHECK(hak_option_set("keep_mb", i % 2 ? "5" : NULL) == 0);
    CHECK(hak_option_set("keep_mb", "x") == EINVAL);
    CHECK(hak_option_get("keep_mb", value, sizeof value) == 0);
  }
  set("keep_mb", NULL);
  hak_stats_get(&after);
  CHECK(before.live_bytes == after.live_bytes && before.metadata_bytes == after.metadata_bytes);
  CHECK(before.refills == after.refills && before.calls_map == after.calls_map);
  CHECK(before.calls_other == after.calls_other);
}

/* What a site frees is cached when it asks for one size again and again. */
#define STEADY_TIMES 16

/* One site, whatever the compiler makes of a loop. */
static __attribute__((noinline)) void *take_big(void) {
  void *volatile block = hak_malloc(8 * MIB);
  return block;
}

static size_t cached_after_free(void) {
  struct hak_stats stats;
  for (int i = 0; i < STEADY_TIMES; i++)
    hak_free(take_big());
  hak_stats_get(&stats);
  return stats.large_cached_bytes;
}

static void takes_effect(void) {
  set("large_cache_mb", "0");
  CHECK(cached_after_free() == 0);
  set("large_cache_mb", NULL);
  CHECK(cached_after_free() >= 8 * MIB);
  set("large_cache_mb", "0");
  CHECK(cached_after_free() == 0);
  set("large_cache_mb", NULL);
}

static void change_and_end(void *values) {
  const char *const *value = values;
  set("stats", value[0]);
  if (value[1])
    set("stats", value[1]);
  close(2);
  exit(0);
}

/* A summary that is asked for while the program runs is printed, one that is called off is not. */
static size_t said_by_child(const char *first, const char *second, char *said, size_t said_bytes) {
  const char *values[] = {first, second};
  CHECK(test_child_says(change_and_end, values, said, said_bytes) == 0);
  return strlen(said);
}

static void summary_follows(void) {
  static char said[20000];
  CHECK_SAY(said_by_child("off", NULL, said, sizeof said) == 0, "%s", said);
  said_by_child("text", NULL, said, sizeof said);
  CHECK_SAY(strstr(said, "hakmem") != NULL && said[0] != '{', "%s", said);
  said_by_child("text", "json", said, sizeof said);
  CHECK_SAY(said[0] == '{', "%s", said);
  CHECK_SAY(said_by_child("json", "off", said, sizeof said) == 0, "%s", said);
}

#define THREADS 4

static void *sets_and_gets(void *number) {
  static const char *const values[] = {"10", "2000", "300000"};
  uint64_t seed = test_seed + (uintptr_t)number;
  for (long i = test_rounds(20000, 10); i > 0; i--) {
    char value[HAK_OPTION_BYTES];
    CHECK(hak_option_set("purge_delay_ms", values[test_random(&seed) % 3]) == 0);
    CHECK(hak_option_get("purge_delay_ms", value, sizeof value) == 0);
    CHECK_SAY(strcmp(value, "10") == 0 || strcmp(value, "2000") == 0 || strcmp(value, "300000") == 0,
              "%s was never set", value);
  }
  return NULL;
}

static void threads_see_whole_values(void) {
  set("purge_delay_ms", "10");
  test_threads_run(THREADS, sets_and_gets, NULL, 1);
  set("purge_delay_ms", NULL);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  CHECK(hak_option_set("profile", NULL) == 0); /* whatever the environment says */
  names_and_values();
  costs_nothing();
  takes_effect();
  summary_follows();
  threads_see_whole_values();
}
