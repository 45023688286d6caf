/* samples.h: sampled blocks, and the call stacks that allocated them.
 *
 * Each stack has three sums: allocated so far, live, and live at the peak. The peak is the first moment at which all
 * live samples together had the most bytes. All three are exact. An event costs O(1), except when a table grows.
 *
 * The caller's lock guards everything. Memory comes from os_map. A stack without memory, or beyond
 * SAMPLES_STACK_BYTES_MAX, counts as one of the `others`. A block without memory is dropped, and counted as dropped.
 *   S1  live.bytes is the sum of the blocks' bytes in the table, and of all stacks' live bytes; <= peak_bytes
 *   S2  a stack whose `changed` is after peak_event had `before` live at the peak; any other had its present `live`
 * All zeros: empty.
 */
#pragma once

#include "base/words.h"

#define SAMPLES_DEPTH_MAX 64u /* of deeper stacks only the innermost frames are kept */
#define SAMPLES_STACK_BYTES_MAX ((size_t)64 << 20)
#define SAMPLES_CHUNK_BYTES ((size_t)128 << 10)
#define SAMPLES_CHUNKS (SAMPLES_STACK_BYTES_MAX / SAMPLES_CHUNK_BYTES)
#define SAMPLES_BLOCKS_MAX ((size_t)1 << 25)

/* What a sample stands for. The number of objects is in units of 1/1024. */
struct sample_weight {
  uint64_t bytes, objects_1024;
};
static inline uint64_t sample_objects(struct sample_weight weight) { return (weight.objects_1024 + 512) / 1024; }

/* A stack. Its return addresses follow the struct, innermost first. */
struct sample_stack {
  struct sample_weight allocated, live, before;
  uint64_t changed;          /* number of the last event that changed `live` */
  struct sample_stack *next; /* of the same bucket; in a copy, nothing */
  uint32_t hash;
  uint32_t depth;
};
static inline const uintptr_t *sample_stack_addresses(const struct sample_stack *stack) {
  return (const uintptr_t *)(stack + 1);
}

struct samples {
  struct sample_block *blocks; /* open addressing, no tombstones */
  size_t block_capacity, block_count;
  struct sample_stack **buckets; /* of stacks, by hash */
  char *chunks[SAMPLES_CHUNKS];  /* the stacks, which never move */
  size_t chunk_count, chunk_used;
  struct sample_stack others; /* has no addresses */
  struct sample_weight allocated, live, dropped;
  uint64_t peak_bytes, peak_event, events;
};

/* Adds a block that this stack allocated. False: it was dropped for lack of memory. */
bool samples_add(struct samples *samples, const void *block, const uintptr_t *stack, unsigned depth,
                 struct sample_weight weight);
/* Removes a block that is freed. False: it is no sample. */
bool samples_remove(struct samples *samples, const void *block);
/* Gives a block another address. False: it is no sample. */
bool samples_rename(struct samples *samples, const void *block, const void *renamed);
/* Empties the samples and gives their memory back. */
void samples_clear(struct samples *samples);

/* Copies the stacks, without blocks, for a slow reader. samples_clear clears the copy. False: no memory, and the
 * copy is empty. */
bool samples_copy_stacks(struct samples *copy, const struct samples *samples);

/* Returns the stacks one after another, and `others` if it is not empty; NULL after the last. *cursor starts at 0. */
const struct sample_stack *samples_next(const struct samples *samples, size_t *cursor);
struct sample_weight samples_at_peak(const struct samples *samples, const struct sample_stack *stack);

/* Returns the bytes mapped for all tables. */
size_t samples_bytes(const struct samples *samples);

#ifdef HAK_DEBUG
bool samples_are_valid(const struct samples *samples);
#endif
