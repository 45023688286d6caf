#include "os/lock.h"

#include "os/os.h"

#define SPINS_MAX 100

static bool lock_spin(struct lock *lock) {
  for (unsigned i = 0; i < SPINS_MAX; i++) {
    os_spin_hint();
    if (load_relaxed(&lock->word) == 0 && lock_try(lock))
      return true;
  }
  return false;
}

NOINLINE void lock_wait(struct lock *lock) {
  if (lock_spin(lock))
    return;
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
    os_futex_wait_for(&lock->word, 2, UINT64_MAX);
}

NOINLINE bool lock_wait_for(struct lock *lock, uint64_t timeout_ms) {
  if (lock_spin(lock))
    return true;
  uint64_t now_ms = os_milliseconds(), until_ms = now_ms + timeout_ms;
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
    if (now_ms >= until_ms)
      return false;
    os_futex_wait_for(&lock->word, 2, until_ms - now_ms);
    now_ms = os_milliseconds();
  }
  return true;
}

NOINLINE void lock_wake(struct lock *lock) { os_futex_wake(&lock->word); }
