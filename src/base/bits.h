/* bits.h: sets of numbers, as bits of words. The caller lets one thread write at a time. Others may read meanwhile:
 * each word is read and written as a whole. */
#pragma once

#include "base/words.h"

static inline uint64_t word_read(const uint64_t *words, size_t i) {
  return __atomic_load_n(&words[i], __ATOMIC_RELAXED);
}

static inline bool bit_is_set(const uint64_t *words, size_t i) { return (word_read(words, i / 64) >> i % 64 & 1) != 0; }

static inline void bit_set(uint64_t *words, size_t i, bool value) {
  uint64_t word = word_read(words, i / 64) & ~((uint64_t)1 << i % 64);
  __atomic_store_n(&words[i / 64], word | (uint64_t)value << i % 64, __ATOMIC_RELAXED);
}

static inline void bits_set(uint64_t *words, size_t first, size_t count, bool value) {
  for (size_t i = first, end = first + count; i < end;) {
    size_t some = min_size(64 - i % 64, end - i);
    uint64_t mask = (~(uint64_t)0 >> (64 - some)) << i % 64;
    uint64_t word = word_read(words, i / 64);
    __atomic_store_n(&words[i / 64], value ? word | mask : word & ~mask, __ATOMIC_RELAXED);
    i += some;
  }
}

/* Returns the first number from `from` on whose bit is `value`; `end` if there is none before it. */
static inline size_t bit_find(const uint64_t *words, size_t from, size_t end, bool value) {
  for (size_t i = from; i < end; i = (i / 64 + 1) * 64) {
    uint64_t bits = (value ? word_read(words, i / 64) : ~word_read(words, i / 64)) >> i % 64;
    if (bits != 0)
      return min_size(i + (size_t)__builtin_ctzll(bits), end);
  }
  return end;
}
