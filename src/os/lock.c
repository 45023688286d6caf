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

NOINLINE bool lock_wait(struct lock *lock, uint64_t until_ms) {
  if (lock_spin(lock))
    return true;
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0) {
    uint64_t now_ms = os_milliseconds();
    if (now_ms >= until_ms)
      return false;
    os_futex_wait_for(&lock->word, 2, until_ms == UINT64_MAX ? UINT64_MAX : until_ms - now_ms);
  }
  return true;
}

NOINLINE void lock_wake(struct lock *lock) { os_futex_wake(&lock->word); }
