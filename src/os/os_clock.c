/* os_clock.c: futexes and clocks. */
#include "base/counters.h"
#include "os/os.h"

#include "os/kernel.h"
#include "os/vdso.h"

#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/syscall.h>
#include <time.h>

/* timeout_ms UINT64_MAX: no timeout. */
static long futex_wait(_Atomic uint32_t *word, int operation, uint32_t expected, uint64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  counter_note(calls_futex);
  return os_kernel(SYS_futex, word, operation, expected, timeout_ms == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int operation) {
  counter_note(calls_futex);
  os_kernel(SYS_futex, word, operation, 1, NULL, NULL, 0);
}

void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  futex_wait(word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, timeout_ms);
}

void os_futex_wake(_Atomic uint32_t *word) { futex_wake(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG); }

bool os_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  KEEP_ERRNO;
  return futex_wait(word, FUTEX_WAIT, expected, timeout_ms) == 0;
}

void os_futex_wake_shared(_Atomic uint32_t *word) {
  KEEP_ERRNO;
  futex_wake(word, FUTEX_WAKE);
}

void os_spin_hint(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

#if defined(__x86_64__)
#define VDSO_CLOCK "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define VDSO_CLOCK "__kernel_clock_gettime"
#endif

typedef int clock_read(clockid_t, struct timespec *);
static int kernel_clock(clockid_t clock, struct timespec *out) { return (int)os_kernel(SYS_clock_gettime, clock, out); }
static _Atomic(clock_read *) found_clock;

static COLD clock_read *find_clock(void) {
  void *function = os_vdso_function(VDSO_CLOCK);
  clock_read *clock = kernel_clock;
  if (function)
    memcpy(&clock, &function, sizeof clock);
  store_relaxed(&found_clock, clock);
  return clock;
}

/* Not libc's clock_gettime: a simulator, or a library that shows a program another time, replaces it by one that may
 * stand still, fail or call malloc. */
static struct timespec read_clock(clockid_t id) {
  struct timespec now = {0};
  clock_read *clock = load_relaxed(&found_clock);
  if (UNLIKELY(clock == NULL))
    clock = find_clock();
  clock(id, &now);
  return now;
}

uint64_t os_milliseconds(void) {
  struct timespec now = read_clock(CLOCK_MONOTONIC_COARSE);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_nanoseconds_of(int clock) {
  struct timespec now = read_clock(clock);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_nanoseconds(void) { return os_nanoseconds_of(CLOCK_MONOTONIC); }

void os_yield(void) { sched_yield(); }
