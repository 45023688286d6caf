/* Options change all the time while threads allocate and free: contents stay, and when everything is freed and the
 * options are back, the heap is as usable as before. A limit may make malloc return NULL. */
#include "../reclaim/again.h"
#include "../threads.h"

#include <stdatomic.h>
#include <stdbool.h>

#define THREADS 3
#define SLOTS 300
/* The kernel orders the end of one thread's mapping before another's at the same address; TSan does not know. */
#define BIG_MAX (TEST_TSAN ? 60 << 10 : 4 << 20)

static __typeof__(&hak_option_set) option_set;

/* What may change while a program runs; the values of one option stand together. */
static const struct change {
  const char *name;
  const char *values[5];
} changes[] = {
    {"profile", {"speed", "balanced", "lean"}},
    {"bin_slots", {"4", "64", "2048"}},
    {"bin_kb_max", {"0", "2048"}},
    {"heap_kb_max", {"0", "32768"}},
    {"keep_mb", {"0", "1", "512"}},
    {"purge_delay_ms", {"0", "1", "10000"}},
    {"large_cache_mb", {"0", "4", "4096"}},
    {"reserve_mb", {"4", "1024"}},
    {"purge", {"dontneed", "free", "off"}},
    {"target_mb", {"0", "1", "10"}},
    {"limit_mb", {"0", "1", "64"}},
    {"background", {"on", "off"}},
    {"huge", {"off", "large", "all"}},
};
#define CHANGES (sizeof changes / sizeof *changes)

static _Atomic int working = THREADS;

struct block {
  uint64_t *words;
  size_t count;
  uint64_t tag; /* the first and the last word */
};

static void look_and_free(struct block *block) {
  if (block->words == NULL)
    return;
  CHECK(block->words[0] == block->tag && block->words[block->count - 1] == block->tag);
  t_free(block->words);
  block->words = NULL;
}

static void *works(void *number) {
  uint64_t seed = test_seed * THREADS + (uintptr_t)number;
  static struct block all[THREADS][SLOTS];
  struct block *blocks = all[(uintptr_t)number];
  long taken = 0;
  for (long i = test_rounds(200000, 10); i > 0; i--) {
    struct block *block = &blocks[test_random(&seed) % SLOTS];
    look_and_free(block);
    uint64_t draw = test_random(&seed);
    size_t bytes = 16 + (draw >> 8) % (draw % 512 == 0 ? BIG_MAX : draw % 16 == 0 ? 64 << 10 : 1024);
    bool zeroed = draw & 1 << 20;
    block->count = bytes / sizeof(uint64_t);
    block->words = zeroed ? t_calloc(block->count, sizeof(uint64_t)) : t_malloc(bytes);
    if (block->words == NULL)
      continue;
    taken++;
    if (zeroed) { /* whatever became of the pages */
      for (size_t word = 0; word < block->count; word += 64)
        CHECK(block->words[word] == 0);
      CHECK(block->words[block->count - 1] == 0);
    }
    for (size_t word = 0; word < block->count; word += 512)
      block->words[word] = draw;
    block->words[0] = block->words[block->count - 1] = block->tag = draw;
  }
  for (int i = 0; i < SLOTS; i++)
    look_and_free(&blocks[i]);
  CHECK(taken > 0);
  atomic_fetch_sub(&working, 1);
  return NULL;
}

static void set(const char *name, const char *value) {
  int error = option_set(name, value);
  CHECK_SAY(error == 0, "%s=%s: %d", name, value ? value : "NULL", error);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  option_set = TEST_HAK(hak_option_set);
  CHECK(option_set != NULL);
  pthread_t threads[THREADS];
  test_threads_start(threads, THREADS, works, NULL, 1);
  uint64_t seed = test_seed;
  while (atomic_load(&working) > 0) {
    const struct change *change = &changes[test_random(&seed) % CHANGES];
    unsigned count = 0;
    while (change->values[count])
      count++;
    set(change->name, change->values[test_random(&seed) % (count + 1)]); /* NULL stands behind the last */
    if (test_random(&seed) % 256 == 0)
      t_trim(0);
    usleep(100);
  }
  test_threads_join(threads, THREADS);
  for (unsigned i = 0; i < CHANGES; i++)
    set(changes[i].name, NULL);
  for (int i = 0; i < 1000; i++) {
    void *block = CHECK_GOT(t_malloc((size_t)1 << i % 20));
    t_free(block);
  }
}
