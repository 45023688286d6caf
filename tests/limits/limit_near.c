/* A program whose live memory is beyond 7/8 of its limit uses freed memory again. If all of it went back at once, each
 * object would be faulted in anew. */
#include "../heap_api.h"
#include "../reclaim/again.h"

#include <hakmem/stats.h>

#define LIMIT_MIB "1000"
#define LIVE 900
#define WORKING 8
#define BYTES (4 * MIB)
#define TURNS 500
#define PURGED_MAX ((uint64_t)TURNS * BYTES / 4)

int main(int argc, char **argv) {
  static char *live[LIVE], *working[WORKING];
  struct hak_stats stats;
  test_begin_with(argc, argv, "HAKMEM_LIMIT_MB", LIMIT_MIB);
  for (int i = 0; i < LIVE; i++)
    CHECK((live[i] = t_malloc(MIB)) != NULL); /* nothing is written */
  for (int turn = 0; turn < TURNS; turn++) {
    char **object = &working[turn % WORKING];
    t_free(*object);
    CHECK((*object = t_malloc(BYTES - (size_t)(turn % 7) * MIB / 8)) != NULL);
    memset(*object, 1, BYTES / 2);
  }
  CHECK(TEST_HAK(hak_stats_get)(&stats) == 0);
  CHECK_SAY(stats.purged_bytes <= PURGED_MAX, "%llu bytes went back", (unsigned long long)stats.purged_bytes);
  t_free_all(working, WORKING);
  t_free_all(live, LIVE);
}
