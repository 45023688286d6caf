#include "os/lock.h"

#include "os/os.h"

#define SPINS_MAX 100

NOINLINE void lock_wait(struct lock *lock) {
  for (unsigned i = 0; i < SPINS_MAX; i++) {
    os_spin_hint();
    if (atomic_load_explicit(&lock->word, memory_order_relaxed) == 0 && lock_try(lock))
      return;
  }
  while (atomic_exchange_explicit(&lock->word, 2, memory_order_acquire) != 0)
    os_futex_wait(&lock->word, 2);
}

NOINLINE void lock_wake(struct lock *lock) { os_futex_wake(&lock->word); }
