/* ring.h: a bounded queue of pointers for many producers and consumers, without locks of its own:
 * hand-over is one exchange per cell, so the test orders the threads as little as possible. */
#pragma once

#include <sched.h>
#include <stdatomic.h>
#include <stddef.h>

#define RING_CELLS 1024u

struct ring {
  void *_Atomic cells[RING_CELLS];
  _Atomic unsigned in, out;
};

static inline void ring_give(struct ring *ring, void *pointer) {
  void *_Atomic *cell = &ring->cells[atomic_fetch_add_explicit(&ring->in, 1, memory_order_relaxed) % RING_CELLS];
  for (;;) {
    void *expected = NULL;
    if (atomic_compare_exchange_weak_explicit(cell, &expected, pointer, memory_order_release, memory_order_relaxed)) {
      return;
    }
    sched_yield();
  }
}

static inline void *ring_take(struct ring *ring) {
  void *_Atomic *cell = &ring->cells[atomic_fetch_add_explicit(&ring->out, 1, memory_order_relaxed) % RING_CELLS];
  for (;;) {
    void *pointer = atomic_exchange_explicit(cell, NULL, memory_order_acquire);
    if (pointer)
      return pointer;
    sched_yield();
  }
}
