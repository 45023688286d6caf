/* Threads with their own random work that hand blocks to each other through mailboxes. The receiver
 * verifies the sender's pattern and frees or keeps the block.
 *
 * The address-ordered shadow is shared under a lock, which orders the threads. Under TSan that order
 * would hide races of the heap, so there blocks are checked by content only. */
#include <stdatomic.h>

#include "../threads.h"
#include "records.h"

#define THREADS 4u
#define SLOTS (SHADOW_RECORDS / THREADS / 2)
#define MAILBOXES 128u

static _Atomic uint32_t mailboxes[MAILBOXES]; /* record index + 1, 0 = empty */
static long operations;

/* A thread owns a set of record indices; an exchange with a mailbox trades one index for another, so
 * a record is always in exactly one hand. */
static void *worker(void *argument) {
  uint32_t number = (uint32_t)(uintptr_t)argument, mine[SLOTS];
  uint64_t seed = test_seed * 1000 + number;
  for (uint32_t i = 0; i < SLOTS; i++)
    mine[i] = number * SLOTS + i + 1;
  for (long n = 0; n < operations; n++) {
    uint32_t i = (uint32_t)(test_random(&seed) % SLOTS);
    if (mine[i] && test_random(&seed) % 3 == 0) {
      uint32_t box = (uint32_t)(test_random(&seed) % MAILBOXES);
      mine[i] = atomic_exchange_explicit(&mailboxes[box], mine[i], memory_order_acq_rel);
    }
    if (!mine[i])
      continue;
    struct shadow_record *record = &shadow.records[mine[i] - 1];
    if (record->address) {
      record_free(mine[i] - 1);
    } else {
      const struct shadow_request request = shadow_draw(&seed);
      CHECK(shadow_allocate(record, &request));
      record_enter(mine[i] - 1);
    }
  }
  for (uint32_t i = 0; i < SLOTS; i++) {
    if (mine[i] && shadow.records[mine[i] - 1].address)
      record_free(mine[i] - 1);
  }
  return NULL;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  operations = test_rounds(20000, 60);
  for (int round = 0; round < 3; round++, test_seed++) {
    test_threads_run(THREADS, worker, NULL, 1);
    for (uint32_t i = 0; i < MAILBOXES; i++) {
      uint32_t index = atomic_exchange(&mailboxes[i], 0);
      if (index && shadow.records[index - 1].address)
        record_free(index - 1);
    }
    CHECK(shadow.root == 0);
  }
}
