/* lock.h: a mutex of one word. It spins a little, then sleeps on a futex. A zero word is unlocked.
 *
 * lock_try and lock_give are sequentially consistent. So of two threads, one that pushes and then tries the lock, and
 * one that gives the lock and then looks, at least one sees the other (heap/envelope.c). Values: 0 free, 1 held, 2 held
 * and a thread may sleep (Drepper, "Futexes Are Tricky", mutex 3). */
#pragma once

#include "base/words.h"

struct lock {
  _Atomic uint32_t word;
};

/* Waits until a time, UINT64_MAX: for ever. False: another thread still holds the lock. */
bool lock_wait(struct lock *lock, uint64_t until_ms);
void lock_wake(struct lock *lock);

static inline bool lock_try(struct lock *lock) {
  uint32_t free_word = 0;
  return atomic_compare_exchange_strong_explicit(&lock->word, &free_word, 1, memory_order_seq_cst,
                                                 memory_order_seq_cst);
}
/* For a moment only, unless the holder is known to be stuck. */
static inline bool lock_is_held(const struct lock *lock) { return load_relaxed(&lock->word) != 0; }
/* For its holder: tells whether a thread may sleep until it is given. */
static inline bool lock_is_awaited(const struct lock *lock) { return load_relaxed(&lock->word) == 2; }
static inline void lock_take(struct lock *lock) {
  if (UNLIKELY(!lock_try(lock)))
    lock_wait(lock, UINT64_MAX);
}
static inline void lock_give(struct lock *lock) {
  if (UNLIKELY(atomic_exchange_explicit(&lock->word, 0, memory_order_seq_cst) == 2))
    lock_wake(lock);
}
/* Takes a lock, and gives it at the end of the function or block, after what it returns was computed. */
#define HOLD_LOCK(address)                                                                                             \
  __attribute__((cleanup(lock_let_go), unused)) struct lock *const lock_held = lock_taken(address)
static inline struct lock *lock_taken(struct lock *lock) {
  lock_take(lock);
  return lock;
}
static inline void lock_let_go(struct lock *const *held) { lock_give(*held); }
