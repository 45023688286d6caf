/* granules.h: the granules of one chunk of packed blocks (large/packed.h), and its runs of free ones. The caller has
 * the lock of packed blocks. */
#pragma once

#include "base/bits.h"

#define GRANULE_BYTES ((size_t)256)
#define CHUNK_BYTES (62 * UNIT_BYTES) /* long, so that little is lost after the last block: 4 of 1,000,000 bytes fit */
#define CHUNK_WORDS (CHUNK_BYTES / GRANULE_BYTES / 64)

struct chunk {
  char *base;        /* const */
  uint32_t granules; /* const */
  uint32_t taken;
  uint32_t longest;                                /* free run */
  bool is_purged;                                  /* its free pages were purged, and nothing changed since */
  struct chunk *next, *previous;                   /* of those with such a run */
  struct chunk *next_unpurged, *previous_unpurged; /* unless is_purged */
  uint64_t used[CHUNK_WORDS], ends[CHUNK_WORDS];   /* written under the lock, read without one */
  int16_t starting[CHUNK_WORDS]; /* for each word of `used`, the longest free run that starts there; 0: none does */
};
_Static_assert(CHUNK_BYTES / GRANULE_BYTES < INT16_MAX, "a run's length");

struct run {
  size_t first, count;
};

/* Returns the free run that an index lies in, or ends. */
static inline struct run free_run_around(const struct chunk *chunk, size_t index) {
  size_t first = index, end = bit_find(chunk->used, index, chunk->granules, true);
  while (first > 0) {
    size_t word = (first - 1) / 64;
    uint64_t bits = word_read(chunk->used, word) << (63 - (first - 1) % 64);
    if (bits != 0) {
      first -= (size_t)__builtin_clzll(bits);
      break;
    }
    first = word * 64;
  }
  return (struct run){.first = first, .count = end - first};
}

/* Returns the next free run from an index on; an empty run if there is none. */
static inline struct run free_run(const struct chunk *chunk, size_t from) {
  size_t first = bit_find(chunk->used, from, chunk->granules, false);
  return (struct run){.first = first, .count = bit_find(chunk->used, first, chunk->granules, true) - first};
}

/* Returns the shortest free run that starts in a word and has so many granules, or the longest. */
static inline struct run free_run_starting(const struct chunk *chunk, size_t word, size_t granules) {
  struct run best = {.first = word * 64};
  if (best.first > 0 && !bit_is_set(chunk->used, best.first - 1)) /* a run that starts earlier */
    best.first = bit_find(chunk->used, best.first, chunk->granules, true);
  for (struct run run = free_run(chunk, best.first); run.count > 0 && run.first / 64 == word;
       run = free_run(chunk, run.first + run.count))
    if (best.count < granules ? run.count > best.count : run.count >= granules && run.count < best.count)
      best = run;
  return best;
}

/* Writes `starting` after the granules of a run were taken or freed. */
static inline void starting_update(struct chunk *chunk, struct run run) {
  size_t end = run.first + run.count;
  size_t before = run.first > 0 ? free_run_around(chunk, run.first - 1).first : 0;
  size_t words[] = {before / 64, run.first / 64, end / 64};
  for (unsigned i = 0; i < 3; i++)
    if ((i == 0 || words[i] != words[i - 1]) && words[i] < CHUNK_WORDS)
      chunk->starting[words[i]] = (int16_t)free_run_starting(chunk, words[i], SIZE_MAX).count;
}

static inline size_t longest_run(const struct chunk *chunk) {
  int16_t longest = 0;
  for (size_t word = 0; word < CHUNK_WORDS; word++)
    longest = chunk->starting[word] > longest ? chunk->starting[word] : longest;
  return (size_t)longest;
}

/* Returns a free run of so many granules, or a shorter one if there is none: the shortest of those that are the longest
 * of their word. */
static inline struct run free_run_for(const struct chunk *chunk, size_t granules) {
  int16_t best = INT16_MAX;
  for (size_t word = 0; word < CHUNK_WORDS; word++) {
    int16_t fits = chunk->starting[word] >= (int16_t)granules ? chunk->starting[word] : INT16_MAX;
    best = fits < best ? fits : best;
  }
  size_t word = 0;
  while (word < CHUNK_WORDS && chunk->starting[word] != best)
    word++;
  return word < CHUNK_WORDS ? free_run_starting(chunk, word, granules) : (struct run){0};
}
