/* A program for `hakmem-policy show` to look at. It says "ready" on stdout and ends when stdin does.
 *     threads N      N threads take and free large objects all the time
 *     steps, torn    what a reader finds changes all the time: all sums of all arms from one number to the next; torn says
 *                    nothing of its changes
 *     other, damaged, stuck, garbage
 *                    what a reader finds is of another version; has impossible numbers; seems to change all the time;
 *                    is random but for the numbers that are checked first
 */
#include "../check.h"
#include "adapt/view.h"

#include <pthread.h>

#define ROUNDS_AT_FIRST 50
#define SIZES 7
#define ARMS 64u
#define SPINS_BETWEEN 2000

static _Atomic bool is_over;
static _Atomic int ready;

static void *change(void *argument) {
  uint64_t random = (uint64_t)(uintptr_t)argument;
  for (int round = 0; !atomic_load(&is_over); round++) {
    size_t bytes = (size_t)300000 << test_random(&random) % SIZES;
    volatile char *block = test_opaque(malloc(bytes));
    CHECK(block != NULL);
    block[0] = 1;
    free((void *)(uintptr_t)block);
    if (round == ROUNDS_AT_FIRST)
      atomic_fetch_add(&ready, 1);
  }
  return NULL;
}

static void say_and_wait(void) {
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF)
    ;
}

static void run_threads(int count) {
  pthread_t threads[64];
  CHECK(count > 0 && count <= 64);
  for (int i = 0; i < count; i++)
    CHECK(pthread_create(&threads[i], NULL, change, (void *)(uintptr_t)(i + 1)) == 0);
  while (atomic_load(&ready) < count)
    usleep(1000);
  say_and_wait();
  atomic_store(&is_over, true);
  for (int i = 0; i < count; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
}

static struct learned_view view;
static struct site_arm places[ARMS];

static void step(uint64_t number, unsigned from, unsigned to) {
  for (unsigned i = from; i < to; i++) {
    struct evolve_arm *arm = &places[i].arm;
    arm->total_acted = number;
    for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
      arm->total[strategy] = number;
  }
}

/* With the counter as learned.c keeps it; stores stay in order, as atomic_fetch_add is a barrier on both sides. Torn: half of
 * a change stays as long as a whole one, so that a reader meets it whether or not this thread runs just then. */
static void *take_steps(void *argument) {
  bool is_torn = argument != NULL;
  for (uint64_t number = 1; !atomic_load(&is_over); number++) {
    if (is_torn) {
      step(number, 0, ARMS / 2);
      usleep(100);
      step(number, ARMS / 2, ARMS);
      usleep(100);
      continue;
    }
    atomic_fetch_add(&view.changes, 1);
    step(number, 0, ARMS);
    atomic_fetch_add(&view.changes, 1);
    for (volatile int spin = 0; spin < SPINS_BETWEEN; spin++)
      ;
  }
  return NULL;
}

static void be(const char *what) {
  uint64_t random = test_seed;
  bool is_garbage = strcmp(what, "garbage") == 0;
  for (size_t i = 0; is_garbage && i < sizeof view; i++)
    ((char *)&view)[i] = (char)test_random(&random);
  for (size_t i = 0; is_garbage && i < sizeof places; i++)
    ((char *)places)[i] = (char)test_random(&random);
  bool is_torn = strcmp(what, "torn") == 0, is_stepping = is_torn || strcmp(what, "steps") == 0;
  for (unsigned i = 0; i < ARMS; i++) {
    *(char *)&places[i].taken = (char)(is_stepping || i % 2);
    places[i].site = is_garbage ? places[i].site : i;
  }
  memcpy(view.mark, LEARNED_MARK, sizeof view.mark);
  view.view_bytes = sizeof view - (strcmp(what, "other") == 0);
  view.arm_bytes = sizeof(struct site_arm);
  view.arm_count = strcmp(what, "damaged") == 0 ? 12345 : ARMS;
  view.table.set_count = ARMS / SITE_WAYS;
  view.table.places = places;
  atomic_store(&view.changes, strcmp(what, "stuck") == 0);
  pthread_t thread;
  CHECK(!is_stepping || pthread_create(&thread, NULL, take_steps, is_torn ? &view : NULL) == 0);
  say_and_wait();
  atomic_store(&is_over, true);
  CHECK(!is_stepping || pthread_join(thread, NULL) == 0);
}

int main(int argc, char **argv) {
  CHECK(argc > 1);
  if (strcmp(argv[1], "threads") == 0) {
    CHECK(argc == 3);
    run_threads(atoi(argv[2]));
    return 0;
  }
  test_begin(argc, argv);
  be(argv[1]);
  return 0;
}
