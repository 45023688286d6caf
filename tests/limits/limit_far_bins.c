/* Under a limit of many GiB the bins of steady sets grow (docs/decisions/0067) while many GiB are left. With `own near`
 * the check fails. */
#include "limit_far.h"

#include "../threads.h"

#include <hakmem/stats.h>

#define THREADS 2
#define BLOCKS 60
#define BYTES 10000
#define TURNS 2000
#define REFILLS_MAX (THREADS * TURNS) /* half of that; four times as many where bins do not grow */

static pthread_barrier_t both; /* heaps share a budget while both are in use */

static void *work_in_turns(void *unused) {
  void *blocks[BLOCKS];
  pthread_barrier_wait(&both);
  for (int turn = 0; turn < TURNS; turn++) {
    for (int i = 0; i < BLOCKS; i++)
      CHECK((blocks[i] = t_malloc(BYTES)) != NULL);
    t_free_all(blocks, BLOCKS);
  }
  pthread_barrier_wait(&both);
  return unused;
}

int main(int argc, char **argv) {
  struct hak_stats stats;
  hold(argc, argv);
  CHECK(pthread_barrier_init(&both, NULL, THREADS) == 0);
  test_threads_run(THREADS, work_in_turns, NULL, 0);
  CHECK(TEST_HAK(hak_stats_get)(&stats) == 0);
  CHECK_SAY(stats.refills <= REFILLS_MAX, "%llu refills", (unsigned long long)stats.refills);
  let_go();
}
