/* Heaps that a program makes: what is allocated in one belongs to it until it is destroyed, whoever frees, resizes
 * or asks; limits, defaults, ended threads, forks. Compiled against hak_*, so that the heap under test is hakmem in
 * every flavour. */
#include <stdbool.h>

#include <hakmem/hakmem.h>

#include "../child.h"
#include "../threads.h"

#define BLOCKS 3000u
#define LARGE_BYTES ((size_t)3 << 20)

static char *blocks[BLOCKS];
static bool is_lie; /* a heap is kept that should be destroyed */

static struct hak_heap_stats stats_of(hak_heap *heap) {
  struct hak_heap_stats stats;
  CHECK(hak_heap_stats_get(heap, &stats) == 0);
  return stats;
}

static hak_heap *heap_new(size_t limit_bytes) { return CHECK_GOT(hak_heap_new(limit_bytes)); }

/* Sizes of every kind, the last ones large. */
static size_t size_of(unsigned i) { return i % 100 == 99 ? LARGE_BYTES / (i / 100 % 8 + 1) : 1 + i * 7919u % 3000; }

static void fill(hak_heap *heap) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    blocks[i] = CHECK_GOT(hak_heap_malloc(heap, size_of(i)));
    memset(blocks[i], (int)i, size_of(i) < 4096 ? size_of(i) : 4096);
    CHECK(hak_usable_size(blocks[i]) >= size_of(i));
  }
}

static void check_filled(void) {
  for (unsigned i = 0; i < BLOCKS; i++)
    for (size_t at = 0; at < size_of(i) && at < 4096; at += 97)
      CHECK(blocks[i][at] == (char)i);
}

static void *free_blocks(void *how) {
  for (unsigned i = 0; i < BLOCKS; i++) {
    if (how == NULL || i % 2 == 0)
      hak_free(blocks[i]);
    else
      hak_heap_free(how, blocks[i]);
  }
  return NULL;
}

static struct hak_stats process_stats(void) {
  struct hak_stats stats;
  CHECK(hak_stats_get(&stats) == 0);
  return stats;
}

static void all_ends_at_once(void) {
  for (unsigned turn = 0; turn < 3; turn++) {
    struct hak_stats before = process_stats();
    hak_heap *heap = heap_new(0);
    fill(heap);
    check_filled();
    CHECK(stats_of(heap).large_count == BLOCKS / 100);
    CHECK(stats_of(heap).held_bytes > BLOCKS * 1500);
    CHECK(is_lie || hak_heap_destroy(heap) == 0);
    struct hak_stats after = process_stats();
    CHECK(after.live_bytes == before.live_bytes && after.large_bytes == before.large_bytes);
    CHECK(after.bin_bytes + after.slab_free_bytes == before.bin_bytes + before.slab_free_bytes);
  }
}

static void frees_of_any_thread(void) {
  hak_heap *heap = heap_new(0);
  fill(heap);
  test_thread_run(free_blocks, NULL);
  fill(heap);
  test_thread_run(free_blocks, heap);
  fill(heap);
  free_blocks(heap);
  /* Two threads have freed blocks and ended. What they had under way is swept, here or at this moment by the background
   * thread. */
  for (unsigned turn = 0; turn < 1000; turn++) {
    hak_heap_trim(heap);
    hak_trim(0);
    hak_heap_trim(heap);
    if (stats_of(heap).held_bytes == 0)
      break;
    usleep(10000);
  }
  CHECK_SAY(stats_of(heap).live_bytes == 0, "%zu live", stats_of(heap).live_bytes);
  CHECK_SAY(stats_of(heap).held_bytes == 0, "%zu held", stats_of(heap).held_bytes);
  CHECK(hak_heap_destroy(heap) == 0);
}

static void blocks_are_as_asked(void) {
  hak_heap *heap = heap_new(0);
  for (size_t alignment = 1; alignment <= (size_t)4 << 20; alignment *= 2) {
    char *block = hak_heap_aligned_alloc(heap, alignment, 100);
    CHECK(block != NULL && (uintptr_t)block % alignment == 0);
    memset(block, 1, 100);
  }
  size_t volatile odd = 48; /* the compiler refuses it as a constant */
  errno = 0;
  CHECK(hak_heap_aligned_alloc(heap, odd, 1) == NULL && errno == EINVAL);
  for (size_t size = 1; size < LARGE_BYTES; size = size * 3 + 1) {
    unsigned char *block = hak_heap_malloc(heap, size);
    memset(block, 255, size);
    hak_heap_free(heap, block);
    block = hak_heap_calloc(heap, 1, size);
    for (size_t i = 0; i < size; i++)
      CHECK(block[i] == 0);
    hak_heap_free(heap, block);
  }
  errno = 0;
  CHECK(hak_heap_calloc(heap, test_opaque_size(SIZE_MAX), 2) == NULL && errno == ENOMEM);
  errno = 0;
  CHECK(hak_heap_malloc(heap, test_opaque_size((size_t)PTRDIFF_MAX + 1)) == NULL && errno == ENOMEM);
  errno = 5;
  CHECK(hak_heap_malloc(heap, 0) != hak_heap_malloc(heap, 0) && errno == 5);
  hak_heap_free(heap, NULL);
  CHECK(hak_heap_destroy(NULL) == 0);
  CHECK(hak_heap_destroy(heap) == 0);
}

static void *grow(void *block) { return hak_realloc(block, hak_usable_size(block) * 3); }

/* A block stays in its heap, whoever resizes it, and others stay outside. */
static void realloc_keeps_the_heap(void) {
  hak_heap *heap = heap_new(0), *before;
  for (size_t size = 10; size < 64 * LARGE_BYTES; size *= 9) {
    char *block = hak_heap_malloc(heap, size);
    memset(block, 7, size < 100 ? size : 100);
    block = hak_heap_realloc(heap, block, size * 2);
    size_t live = stats_of(heap).live_bytes;
    CHECK(live >= size * 2);
    block = test_thread_run(grow, block);
    CHECK_SAY(stats_of(heap).live_bytes >= size * 6, "%zu of %zu", stats_of(heap).live_bytes, size * 6);
    CHECK(block[size < 100 ? size - 1 : 99] == 7);
    block = hak_realloc(block, size);
    CHECK(block[size < 100 ? size - 1 : 99] == 7);
    hak_free(block);
    char *outside = hak_malloc(size);
    memset(outside, 9, size < 100 ? size : 100);
    CHECK(hak_heap_set_default(heap, NULL) == 0);
    outside = hak_realloc(outside, size * 4);
    CHECK(hak_heap_set_default(NULL, &before) == 0);
    CHECK(before == heap);
    hak_heap_trim(heap);
    CHECK(stats_of(heap).large_count == 0);
    CHECK(outside[size < 100 ? size - 1 : 99] == 9);
    hak_free(outside);
  }
  CHECK(hak_heap_realloc(heap, NULL, 10) != NULL);
  CHECK(hak_heap_destroy(heap) == 0);
}

static void limits_hold(void) {
  hak_heap *heap = heap_new((size_t)4 << 20), *other = heap_new(0);
  for (int turn = 0; turn < 3; turn++) {
    size_t count = 0, large = 0;
    errno = 0;
    while (count < BLOCKS && (blocks[count] = hak_heap_malloc(heap, 3000)) != NULL)
      count++;
    CHECK_SAY(count > 1000 && count < 1398 && errno == ENOMEM, "%zu", count);
    CHECK(stats_of(heap).held_bytes <= stats_of(heap).limit_bytes);
    CHECK(hak_heap_malloc(other, 3000) != NULL); /* its limit is no other's */
    CHECK(hak_heap_malloc(heap, 300000) == NULL);
    while (count > 0)
      hak_heap_free(heap, blocks[--count]);
    /* What is free in the bins and in slabs serves large objects, too. */
    while ((blocks[large] = hak_heap_malloc(heap, (size_t)1 << 20)) != NULL)
      large++;
    CHECK_SAY(large == 4, "%zu", large);
    CHECK(hak_realloc(blocks[0], (size_t)2 << 20) == NULL && hak_heap_malloc(heap, 3000) == NULL);
    hak_free(blocks[1]);
    blocks[0] = CHECK_GOT(hak_realloc(blocks[0], (size_t)2 << 20));
    for (size_t i = 0; i < large; i++)
      if (i != 1)
        hak_free(blocks[i]);
    CHECK(stats_of(heap).large_bytes == 0);
  }
  CHECK(hak_heap_destroy(heap) == 0 && hak_heap_destroy(other) == 0);
}

static void the_default_is_switched(void) {
  hak_heap *first = heap_new(0), *second = heap_new(0), *before = first;
  CHECK(hak_heap_set_default(first, &before) == 0 && before == NULL);
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = CHECK_GOT(hak_malloc(size_of(i)));
  CHECK(stats_of(first).large_count == BLOCKS / 100);
  CHECK(hak_heap_malloc(second, 100) != NULL && hak_heap_malloc(first, 100) != NULL);
  CHECK(hak_heap_set_default(second, &before) == 0 && before == first);
  void *of_second = hak_malloc(100);
  CHECK(hak_heap_set_default(NULL, &before) == 0 && before == second);
  void *outside = hak_malloc(100);
  free_blocks(NULL);
  CHECK(hak_heap_set_default(first, NULL) == 0);
  hak_free(of_second);
  hak_free(outside);
  CHECK(hak_heap_destroy(first) == 0); /* the default is the ordinary heap again */
  CHECK(hak_heap_set_default(NULL, &before) == 0 && before == NULL);
  CHECK(hak_heap_destroy(second) == 0);
}

static pthread_barrier_t barrier;

static void *default_until_told(void *heap) {
  CHECK(hak_heap_set_default(heap, NULL) == 0);
  CHECK(hak_malloc(100) != NULL);
  pthread_barrier_wait(&barrier);
  pthread_barrier_wait(&barrier);
  return NULL;
}

static void a_default_of_another_thread_stays(void) {
  hak_heap *heap = heap_new(0);
  pthread_t thread;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, default_until_told, heap) == 0);
  pthread_barrier_wait(&barrier);
  CHECK(hak_heap_destroy(heap) == EBUSY);
  CHECK(hak_heap_malloc(heap, 100) != NULL);
  pthread_barrier_wait(&barrier);
  CHECK(pthread_join(thread, NULL) == 0);
  if (!TEST_EMULATED) /* emulators do not tell of ends */
    CHECK(hak_heap_destroy(heap) == 0);
}

static _Atomic bool is_swept_enough;

static void *sweep(void *unused) {
  while (!is_swept_enough)
    hak_trim(0);
  return unused;
}

static void *default_to_the_end(void *heap) {
  CHECK(hak_heap_set_default(heap, NULL) == 0);
  CHECK(hak_malloc(100) != NULL);
  return NULL;
}

/* Also while another thread is about to sweep what the thread left. */
static void a_default_of_an_ended_thread_does_not(void) {
  pthread_t sweeper;
  if (TEST_EMULATED) /* likewise */
    return;
  CHECK(pthread_create(&sweeper, NULL, sweep, NULL) == 0);
  for (unsigned turn = 0; turn < 300; turn++) {
    hak_heap *heap = heap_new(0);
    test_thread_run(default_to_the_end, heap);
    CHECK_SAY(hak_heap_destroy(heap) == 0, "turn %u", turn);
  }
  is_swept_enough = true;
  CHECK(pthread_join(sweeper, NULL) == 0);
}

#define THREADS 4

static hak_heap *shared;

/* Threads that use one heap, then the next one: what they have of the first is void. */
static void *work_in_turns(void *unused) {
  for (int turn = 0; turn < 20; turn++) {
    pthread_barrier_wait(&barrier);
    void *mine[100], *outside = hak_malloc(200);
    for (int i = 0; i < 100; i++)
      mine[i] = CHECK_GOT(hak_heap_malloc(shared, (size_t)(i * 37 + 1)));
    for (int i = 0; i < 100; i += 2)
      hak_free(mine[i]);
    hak_free(outside);
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static void threads_follow_from_heap_to_heap(void) {
  pthread_t threads[THREADS];
  CHECK(pthread_barrier_init(&barrier, NULL, THREADS + 1) == 0);
  test_threads_start(threads, THREADS, work_in_turns, NULL, 0);
  for (int turn = 0; turn < 20; turn++) {
    shared = heap_new(0);
    void *blocks_of_main[10];
    for (int i = 0; i < 10; i++)
      blocks_of_main[i] = hak_heap_malloc(shared, 500);
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 10; i++)
      hak_heap_free(shared, blocks_of_main[i]);
    pthread_barrier_wait(&barrier);
    CHECK(stats_of(shared).threads == THREADS + 1);
    CHECK(hak_heap_destroy(shared) == 0);
  }
  test_threads_join(threads, THREADS);
}

/* More heaps than a thread has bins for, all alive. */
static void many_heaps_of_a_thread(void) {
  hak_heap *heaps[100];
  char *first[100];
  for (int i = 0; i < 100; i++) {
    heaps[i] = heap_new(0);
    first[i] = CHECK_GOT(hak_heap_malloc(heaps[i], 100));
    memset(first[i], i, 100);
  }
  for (int turn = 0; turn < 3; turn++)
    for (int i = 0; i < 100; i++) {
      char *block = hak_heap_malloc(heaps[i], 100);
      CHECK(block != first[i] && first[i][99] == (char)i);
      hak_heap_free(heaps[i], block);
    }
  for (int i = 0; i < 100; i += 2)
    CHECK(hak_heap_destroy(heaps[i]) == 0);
  for (int i = 1; i < 100; i += 2) {
    CHECK(first[i][99] == (char)i && stats_of(heaps[i]).threads <= 1);
    CHECK(hak_heap_destroy(heaps[i]) == 0);
  }
}

#define TURN_HEAPS 20u /* more than a thread has bins for */

static void *use_heaps_in_turn(void *unused) {
  (void)unused;
  hak_heap *heaps[TURN_HEAPS];
  char *kept[TURN_HEAPS] = {0};
  for (unsigned i = 0; i < TURN_HEAPS; i++)
    heaps[i] = heap_new(0);
  for (long turn = 0; turn < test_rounds(40000, 1); turn++) {
    long i = turn % TURN_HEAPS;
    CHECK(kept[i] == NULL || memcmp(kept[i], &heaps[i], sizeof heaps[i]) == 0);
    hak_heap_free(heaps[i], kept[i]);
    kept[i] = CHECK_GOT(hak_heap_malloc(heaps[i], 100));
    memcpy(kept[i], &heaps[i], sizeof heaps[i]);
  }
  for (unsigned i = 0; i < TURN_HEAPS; i++)
    CHECK(hak_heap_destroy(heaps[i]) == 0);
  return NULL;
}

/* Each thread gives up bins for a heap of its own in each turn, and others take them at once. */
static void threads_use_many_heaps_in_turn(void) { test_threads_run(8, use_heaps_in_turn, NULL, 0); }

/* Blocks of a destroyed heap that are still in another thread's envelopes do not reach the next heap at that place. */
static void *free_then_wait(void *unused) {
  for (int turn = 0; turn < 10; turn++) {
    pthread_barrier_wait(&barrier);
    for (int i = 0; i < 20; i++) /* too few for an envelope to be sent */
      hak_free(blocks[i]);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    if (turn % 2 == 0)
      hak_trim(0); /* sends the envelope */
    pthread_barrier_wait(&barrier);
  }
  return NULL;
}

static void envelopes_of_a_destroyed_heap_are_void(void) {
  pthread_t thread;
  CHECK(pthread_barrier_init(&barrier, NULL, 2) == 0);
  CHECK(pthread_create(&thread, NULL, free_then_wait, NULL) == 0);
  for (int turn = 0; turn < 10; turn++) {
    hak_heap *heap = heap_new(0);
    for (int i = 0; i < 20; i++)
      blocks[i] = hak_heap_malloc(heap, 1000);
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(hak_heap_destroy(heap) == 0);
    hak_heap *next = heap_new(0);
    static char *of_next[BLOCKS];
    for (unsigned i = 0; i < 200; i++) {
      of_next[i] = hak_heap_malloc(next, 1000);
      memset(of_next[i], (int)i, 1000);
    }
    size_t live = stats_of(next).live_bytes;
    pthread_barrier_wait(&barrier);
    pthread_barrier_wait(&barrier);
    CHECK(stats_of(next).live_bytes == live);
    for (unsigned i = 0; i < 200; i++)
      CHECK(of_next[i][0] == (char)i && of_next[i][999] == (char)i);
    CHECK(hak_heap_destroy(next) == 0);
  }
  CHECK(pthread_join(thread, NULL) == 0);
}

static void the_child_of_a_fork_has_the_heaps(void) {
  hak_heap *heap = heap_new(0), *default_heap = heap_new(0);
  fill(heap);
  CHECK(hak_heap_set_default(default_heap, NULL) == 0);
  pid_t child = test_fork();
  if (child == 0) {
    check_filled();
    free_blocks(heap);
    fill(heap);
    CHECK(hak_malloc(100) != NULL && stats_of(default_heap).live_bytes > 0);
    CHECK(hak_heap_destroy(heap) == 0);
    CHECK(hak_heap_destroy(default_heap) == 0);
    heap = heap_new(0);
    fill(heap);
    _exit(hak_heap_destroy(heap));
  }
  test_child_passes(child);
  check_filled();
  CHECK(hak_heap_destroy(heap) == 0 && hak_heap_destroy(default_heap) == 0);
}

/* While a fork is under way frees are refused, and deferred by links in the blocks. This handler is registered before
 * hakmem's, so it runs when hakmem has shut the gate. */
static unsigned freed_in_fork;
static bool is_registered; /* some systems run nothing before constructors */

static void free_in_fork(void) {
  for (; freed_in_fork > 0; freed_in_fork--)
    hak_free(blocks[freed_in_fork - 1]);
}

static void register_early(void) { is_registered = pthread_atfork(free_in_fork, NULL, NULL) == 0; }
__attribute__((section(".preinit_array"), used)) static void (*const register_first)(void) = register_early;

/* The end of a heap finds frees of its blocks that are deferred, small ones and large ones, in the parent and in the
 * child. */
static void deferred_frees_end_with_the_heap(void) {
  for (int turn = 0; turn < 3; turn++) {
    hak_heap *heap = heap_new(0), *other = heap_new(0);
    fill(heap);
    uint64_t deferred = process_stats().frees_deferred;
    freed_in_fork = BLOCKS / 2;
    pid_t child = test_fork();
    CHECK(hak_heap_destroy(heap) == 0);
    heap = heap_new(0);
    fill(heap);
    CHECK(hak_heap_destroy(other) == 0);
    CHECK(stats_of(heap).large_count == BLOCKS / 100);
    check_filled();
    free_blocks(heap);
    CHECK(hak_heap_destroy(heap) == 0);
    deferred = process_stats().frees_deferred - deferred;
    CHECK_SAY(deferred > 0 && deferred <= BLOCKS / 2, "%llu", (unsigned long long)deferred);
    if (child == 0)
      _exit(0);
    test_child_passes(child);
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  is_lie = argc > 1 && strcmp(argv[1], "--lie") == 0;
  if (argc > 1 && strcmp(argv[1], "--checked") == 0) { /* with the option `checked` there are no heaps */
    CHECK(hak_heap_new(0) == NULL && errno == ENOTSUP);
    return 0;
  }
  CHECK(hak_option_set("background", "off") == 0); /* its thread has memory of its own */
  all_ends_at_once();
  frees_of_any_thread();
  blocks_are_as_asked();
  realloc_keeps_the_heap();
  limits_hold();
  the_default_is_switched();
  a_default_of_another_thread_stays();
  a_default_of_an_ended_thread_does_not();
  threads_follow_from_heap_to_heap();
  many_heaps_of_a_thread();
  threads_use_many_heaps_in_turn();
  envelopes_of_a_destroyed_heap_are_void();
  the_child_of_a_fork_has_the_heaps();
  if (is_registered)
    deferred_frees_end_with_the_heap();
}
