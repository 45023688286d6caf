/* malloc and free in every round of pthread key destructors, in any order relative to the allocator's
 * own end of thread; and a thread that only frees, in the last round. */
#include <limits.h>

#include "../heap_api.h"
#include "../threads.h"

#ifndef PTHREAD_DESTRUCTOR_ITERATIONS
#define PTHREAD_DESTRUCTOR_ITERATIONS 4
#endif
#define KEYS 4
#define KEPT_BYTES 200
#define KEPT_BYTE 0x77
/* TSan leaves a thread in its last round; what comes after it cannot judge. */
#define ROUNDS (PTHREAD_DESTRUCTOR_ITERATIONS - TEST_TSAN)

struct state {
  int rounds, last_round_only;
  void *kept[KEYS * ROUNDS];
  int kept_count;
};

static pthread_key_t keys[KEYS];
static int rounds_seen_most;

/* Re-arms its key until the last round and keeps some blocks from round to round. */
static void destructor(void *argument) {
  struct state *state = argument;
  int round = state->rounds++ / KEYS;
  if (round > rounds_seen_most)
    rounds_seen_most = round;
  if (!state->last_round_only) {
    for (int i = 0; i < 100; i++) {
      char *block = CHECK_GOT(t_malloc((size_t)i * 37 + 1));
      block[0] = 1;
      t_free(block);
    }
    void *large = CHECK_GOT(t_malloc(400000));
    t_free(large);
    char *kept = CHECK_GOT(t_malloc(KEPT_BYTES));
    memset(kept, KEPT_BYTE, KEPT_BYTES);
    state->kept[state->kept_count++] = kept;
  }
  if (round + 1 < ROUNDS) {
    for (int i = 0; i < KEYS; i++) {
      if (pthread_getspecific(keys[i]) == NULL)
        CHECK(pthread_setspecific(keys[i], state) == 0);
    }
  } else if (state->last_round_only) {
    while (state->kept_count > 0)
      t_free(state->kept[--state->kept_count]);
  }
}

static void *thread_run(void *argument) {
  for (int i = 0; i < KEYS; i++)
    CHECK(pthread_setspecific(keys[i], argument) == 0);
  return NULL;
}

/* The thread's first and only calls of the heap are in its last destructor round. */
static void free_in_last_round(void) {
  static struct state state;
  memset(&state, 0, sizeof state);
  state.last_round_only = 1;
  for (int i = 0; i < KEYS; i++)
    state.kept[state.kept_count++] = t_malloc((size_t)i * 300 + 8);
  test_thread_run(thread_run, &state);
  CHECK(state.kept_count == 0);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (int i = 0; i < KEYS; i++)
    CHECK(pthread_key_create(&keys[i], destructor) == 0);
  for (long n = test_rounds(400, 400); n > 0; n--) {
    static struct state state;
    memset(&state, 0, sizeof state);
    test_thread_run(thread_run, &state);
    for (int i = 0; i < state.kept_count; i++) {
      for (int j = 0; j < KEPT_BYTES; j++)
        CHECK(((char *)state.kept[i])[j] == KEPT_BYTE);
      t_free(state.kept[i]);
    }
    free_in_last_round();
  }
  CHECK_SAY(rounds_seen_most + 1 >= ROUNDS, "only %d rounds", rounds_seen_most + 1);
}
