/* Threads that work as queues, and for a while in other ways: each replaces the oldest block of its set over and over,
 * then blocks at random, then drops the set. Meanwhile counting begins and ends, a trim asks for what the bins hold,
 * children of forks go on with what they inherited, and threads end. Contents stay, and blocks never overlap. */
#include "../reclaim/again.h"
#include "../threads.h"

#include <stdatomic.h>
#include <sys/wait.h>

#define THREADS 3
#define LIVE 30000u
#define TURNS 5u /* over the set, of each kind of work */

struct worker {
  uint64_t random;
  unsigned number;
  unsigned char *set[LIVE];
  uint16_t sizes[LIVE];
};

static struct worker workers[THREADS];
static _Atomic int working;

static unsigned char mark_of(const struct worker *worker, unsigned i) {
  return (unsigned char)(i * 5 + worker->number);
}

static void drop(struct worker *worker, unsigned i) {
  unsigned char *block = worker->set[i], mark = mark_of(worker, i);
  if (block == NULL)
    return;
  CHECK_SAY(block[0] == mark && block[worker->sizes[i] - 1] == mark, "a block of %u bytes lost its content",
            worker->sizes[i]);
  t_free(block);
  worker->set[i] = NULL;
}

static void replace(struct worker *worker, unsigned i) {
  uint64_t r = test_random(&worker->random);
  drop(worker, i);
  size_t size = 16 + r % 300;
  unsigned char *block = CHECK_GOT(r % 11 == 0 ? t_calloc(1, size) : t_malloc(size));
  memset(block, mark_of(worker, i), size);
  worker->set[i] = block;
  worker->sizes[i] = (uint16_t)size;
}

/* The child uses what its parent's thread had at the fork. */
static void fork_in_queue(struct worker *worker) {
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    alarm(TEST_PATIENCE_SECONDS);
    for (unsigned i = 0; i < LIVE; i += 3)
      replace(worker, i);
    for (unsigned i = 0; i < LIVE; i++)
      drop(worker, i);
    _exit(0);
  }
  int status;
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(status == 0, "the child ended with %d", status);
}

static void *work(void *argument) {
  struct worker *worker = argument;
  for (unsigned i = 0; i < TURNS * LIVE; i++)
    replace(worker, i % LIVE);
  if (worker->number % 2 == 0)
    fork_in_queue(worker);
  for (unsigned i = 0; i < LIVE; i++)
    replace(worker, (unsigned)(test_random(&worker->random) % LIVE));
  for (unsigned i = 0; i < LIVE; i++)
    if (i % 8 != 0)
      drop(worker, i);
  for (unsigned i = 0; i < TURNS * LIVE; i++)
    replace(worker, i % LIVE);
  atomic_fetch_sub(&working, 1);
  return NULL; /* its bins keep what they hold */
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  __typeof__(&hak_option_set) option_set = TEST_HAK(hak_option_set);
  pthread_t threads[THREADS];
  for (long round = 0; round < test_rounds(2, 10); round++) {
    for (unsigned i = 0; i < THREADS; i++)
      workers[i] = (struct worker){.number = i, .random = test_seed + (uint64_t)round * THREADS + i};
    atomic_store(&working, THREADS);
    test_threads_start(threads, THREADS, work, workers, sizeof *workers);
    for (unsigned turn = 0; atomic_load(&working) > 0; turn++) {
      test_pause_ms(20);
      if (turn % 4 == 3)
        t_trim(0);
      if (option_set != NULL) /* it does nothing in a build without observers */
        option_set("count", turn % 8 == 5 ? "on" : "off");
    }
    test_threads_join(threads, THREADS);
    for (unsigned i = 0; i < THREADS; i++)
      for (unsigned j = 0; j < LIVE; j++)
        drop(&workers[i], j);
  }
}
