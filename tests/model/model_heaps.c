/* Threads that allocate in several hak_heaps and in their ordinary ones, by explicit calls and by switching the
 * default, free and resize each other's blocks, and destroy heaps at random. What lies in a destroyed heap is dropped
 * from the shadow; its memory must serve others then, and what is on the way to it must have no effect.
 *
 * A thread that uses a heap, or a block in it, holds the heap's lock for reading; one that destroys it, for writing. */
#include <hakmem/hakmem.h>
#include <stdatomic.h>
#include <stdbool.h>

#include "../threads.h"
#include "records.h"

#define THREADS 4u
#define SLOTS (SHADOW_RECORDS / THREADS / 4)
#define MAILBOXES 64u
#define HEAPS 5u /* and 0, the ordinary ones */
#define NO_HEAP 255u

static _Atomic uint32_t mailboxes[MAILBOXES]; /* record index + 1, 0 = empty */
static _Atomic uint8_t
    heap_of[SHADOW_RECORDS]; /* NO_HEAP: no block; changed by the record's owner, or under the lock */
static struct {
  pthread_rwlock_t lock;
  hak_heap *heap;
} heaps[HEAPS + 1];
static long operations;

/* The heap's lock is held. */
static void record_end(uint32_t index, hak_heap *heap, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index];
  shadow_check(record);
  record_leave(index);
  if (heap != NULL && test_random(seed) % 2 == 0)
    hak_heap_free(heap, record->address);
  else
    t_free(record->address);
  record->address = NULL;
  atomic_store(&heap_of[index], NO_HEAP);
}

static void record_begin(uint32_t index, uint8_t number, uint64_t *seed) {
  hak_heap *heap = heaps[number].heap;
  struct shadow_record *record = &shadow.records[index];
  size_t size = shadow_size(seed);
  atomic_store(&heap_of[index], number);
  if (heap == NULL || test_random(seed) % 4 == 0) {
    CHECK(heap == NULL || hak_heap_set_default(heap, NULL) == 0);
    struct shadow_request request = shadow_draw(seed);
    CHECK(shadow_allocate(record, &request));
    CHECK(heap == NULL || hak_heap_set_default(NULL, NULL) == 0);
  } else if (test_random(seed) % 8 == 0) {
    unsigned char *block = CHECK_GOT(hak_heap_calloc(heap, 1, size));
    for (size_t i = 0; i < size; i++)
      CHECK(block[i] == 0);
    shadow_keep(record, block, size, test_random(seed));
  } else if (test_random(seed) % 8 == 0) {
    size_t alignment = (size_t)16 << test_random(seed) % 14;
    void *block = hak_heap_aligned_alloc(heap, alignment, size);
    CHECK(block != NULL && (uintptr_t)block % alignment == 0);
    shadow_keep(record, block, size, test_random(seed));
  } else {
    void *block = CHECK_GOT(hak_heap_malloc(heap, size));
    shadow_keep(record, block, size, test_random(seed));
  }
  record_enter(index);
}

static void record_resize(uint32_t index, hak_heap *heap, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index], before = *record;
  size_t size = shadow_size(seed) + 1;
  shadow_check(record);
  record_leave(index);
  void *block = CHECK_GOT(heap ? hak_heap_realloc(heap, record->address, size) : t_realloc(record->address, size));
  shadow_verify(&before, block, before.size < size ? before.size : size);
  shadow_keep(record, block, size, test_random(seed));
  record_enter(index);
}

static void heap_destroy(uint8_t number) {
  if (pthread_rwlock_trywrlock(&heaps[number].lock) != 0)
    return;
  for (uint32_t index = 0; index < SHADOW_RECORDS; index++)
    if (atomic_load(&heap_of[index]) == number) {
      shadow_check(&shadow.records[index]);
      record_leave(index);
      shadow.records[index].address = NULL;
      atomic_store(&heap_of[index], NO_HEAP);
    }
  CHECK(hak_heap_destroy(heaps[number].heap) == 0);
  heaps[number].heap = CHECK_GOT(hak_heap_new(0));
  pthread_rwlock_unlock(&heaps[number].lock);
}

/* Does something with a record that the calling thread owns. */
static void step(uint32_t index, uint64_t *seed) {
  uint8_t number = atomic_load(&heap_of[index]);
  bool is_new = number == NO_HEAP;
  if (is_new)
    number = (uint8_t)(test_random(seed) % (HEAPS + 1));
  pthread_rwlock_rdlock(&heaps[number].lock);
  if (is_new)
    record_begin(index, number, seed);
  else if (atomic_load(&heap_of[index]) == NO_HEAP)
    ; /* it was destroyed meanwhile */
  else if (test_random(seed) % 4 == 0)
    record_resize(index, heaps[number].heap, seed);
  else
    record_end(index, heaps[number].heap, seed);
  struct hak_heap_stats stats;
  if (heaps[number].heap != NULL && test_random(seed) % 256 == 0) {
    hak_heap_trim(heaps[number].heap);
    CHECK(hak_heap_stats_get(heaps[number].heap, &stats) == 0 && stats.live_bytes <= stats.held_bytes);
  }
  pthread_rwlock_unlock(&heaps[number].lock);
}

/* A thread owns a set of record indices, and trades one for another with a mailbox. */
static void *worker(void *argument) {
  uint32_t number = (uint32_t)(uintptr_t)argument, mine[SLOTS];
  uint64_t seed = test_seed * 1000 + number;
  for (uint32_t i = 0; i < SLOTS; i++)
    mine[i] = number * SLOTS + i + 1;
  for (long n = 0; n < operations; n++) {
    uint32_t i = (uint32_t)(test_random(&seed) % SLOTS);
    if (test_random(&seed) % 3 == 0) {
      uint32_t box = (uint32_t)(test_random(&seed) % MAILBOXES);
      mine[i] = atomic_exchange_explicit(&mailboxes[box], mine[i], memory_order_acq_rel);
    }
    if (mine[i])
      step(mine[i] - 1, &seed);
    if (test_random(&seed) % 512 == 0)
      heap_destroy((uint8_t)(test_random(&seed) % HEAPS + 1));
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if((heaps[1].heap = hak_heap_new(0)) == NULL && errno == ENOTSUP,
               "blocks are checked (the preset `secure`): there are no heaps then");
  for (uint32_t index = 0; index < SHADOW_RECORDS; index++)
    heap_of[index] = NO_HEAP;
  for (uint32_t i = 0; i <= HEAPS; i++) {
    CHECK(pthread_rwlock_init(&heaps[i].lock, NULL) == 0);
    CHECK(i <= 1 || (heaps[i].heap = hak_heap_new(0)) != NULL);
  }
  operations = test_rounds(12000, 60);
  for (int round = 0; round < 2; round++, test_seed++) {
    uint64_t seed = test_seed;
    test_threads_run(THREADS, worker, NULL, 1);
    for (uint32_t i = 0; i < MAILBOXES; i++)
      atomic_store(&mailboxes[i], 0);
    for (uint8_t i = 1; i <= HEAPS; i++)
      heap_destroy(i);
    for (uint32_t index = 0; index < SHADOW_RECORDS; index++)
      if (atomic_load(&heap_of[index]) != NO_HEAP)
        record_end(index, NULL, &seed);
    CHECK(shadow.root == 0);
  }
  for (uint32_t i = 1; i <= HEAPS; i++)
    CHECK(hak_heap_destroy(heaps[i].heap) == 0);
}
