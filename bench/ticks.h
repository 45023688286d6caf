/* ticks.h: the processor's time stamp, read in order with the instructions around it.
 *
 * x86-64: rdtscp waits until all that stands before it has been executed, and the lfence keeps what stands behind
 * it from starting early, as Intel's manual of rdtscp says. Stores before it need not have reached the cache yet.
 * aarch64: cntvct_el0, between two isb; its rate is in cntfrq_el0 and much lower than the processor's, often 24 MHz
 * to 1 GHz, so a tick is 1 to 40 ns and single fast calls come out as 0 or 1 tick.
 */
#pragma once

#include <stdint.h>

#if defined(__x86_64__)
#define TICKS_SOURCE "rdtscp"
static inline uint64_t ticks_now(void) {
  uint32_t low, high;
  __asm__ volatile("rdtscp\n\tlfence" : "=a"(low), "=d"(high) : : "rcx", "memory");
  return (uint64_t)high << 32 | low;
}
#elif defined(__aarch64__)
#define TICKS_SOURCE "cntvct_el0"
static inline uint64_t ticks_now(void) {
  uint64_t ticks;
  __asm__ volatile("isb\n\tmrs %0, cntvct_el0\n\tisb" : "=r"(ticks) : : "memory");
  return ticks;
}
#else
#error "no time stamp is known for this processor"
#endif
