/* samples.h: sampled blocks, and the stacks that allocated them.
 *
 * Each stack has three sums: allocated so far, live, and live at the peak: the first moment at which all live samples
 * together had the most bytes. All three are exact; an event costs O(1) but for the growth of a table.
 *
 * Nothing here locks: the caller does. Memory comes from os_map. A stack that finds none, or for which STACK_BYTES_MAX
 * leaves no room, is counted as one of the `others`; a block that finds none is dropped, and counted as such.
 *   S1  live.bytes is the sum of the blocks' bytes in the table, and of all stacks' live bytes; <= peak_bytes
 *   S2  a stack whose `changed` is after peak_event had `before` live at the peak; any other had what it has
 * All zeros: empty.
 */
#ifndef HAK_PROFILE_SAMPLES_H
#define HAK_PROFILE_SAMPLES_H

#include "base/words.h"

#define SAMPLES_DEPTH_MAX 64u /* of a deeper stack, the innermost frames */
#define SAMPLES_STACK_BYTES_MAX ((size_t)64 << 20)
#define SAMPLES_CHUNK_BYTES ((size_t)1 << 20)
#define SAMPLES_CHUNKS (SAMPLES_STACK_BYTES_MAX / SAMPLES_CHUNK_BYTES)
#define SAMPLES_BLOCKS_MAX ((size_t)1 << 25)

/* What a sample stands for: objects in 1/1024. */
struct sample_weight {
  uint64_t bytes, objects_1024;
};

/* The return addresses, innermost first, follow it. */
struct sample_stack {
  struct sample_weight allocated, live, before;
  uint64_t changed; /* number of the event that changed `live` last */
  uint32_t hash;
  uint32_t depth;
};
static inline const uintptr_t *sample_stack_addresses(const struct sample_stack *stack) {
  return (const uintptr_t *)(stack + 1);
}

struct samples {
  struct sample_block *blocks; /* open addressing, no tombstones */
  size_t block_capacity, block_count;
  struct sample_place *places; /* of stacks: open addressing, nothing is taken out */
  size_t place_capacity, stack_count;
  char *chunks[SAMPLES_CHUNKS]; /* the stacks themselves, which stay where they are */
  size_t chunk_count, chunk_used;
  struct sample_stack others; /* has no addresses */
  struct sample_weight allocated, live, dropped;
  uint64_t peak_bytes, peak_event, events;
};

/* The block was allocated from this stack. False: dropped, there is no memory. */
bool samples_add(struct samples *samples, const void *block, const uintptr_t *stack, unsigned depth,
                 struct sample_weight weight);
/* The block is freed. False: it is none of ours. */
bool samples_remove(struct samples *samples, const void *block);
/* The block is another one, maybe of another size, or the same with another size. It stays its stack's; what it grew by
 * is allocated. False: it is none of ours. */
bool samples_move(struct samples *samples, const void *block, const void *block_moved, struct sample_weight weight);
/* The same block is known by another address from then on. */
bool samples_rename(struct samples *samples, const void *block, const void *renamed);
/* Empty, and its memory is given back. */
void samples_clear(struct samples *samples);

/* The stacks as they are, for a reader who needs time; no blocks. `copy` is empty before, and cleared by samples_clear.
 * False: no memory. */
bool samples_copy_stacks(struct samples *copy, const struct samples *samples);

/* The stacks one after another, the others among them if there are any; NULL behind the last. *cursor starts at 0. */
const struct sample_stack *samples_next(const struct samples *samples, size_t *cursor);
struct sample_weight samples_at_peak(const struct samples *samples, const struct sample_stack *stack);

/* Bytes mapped for all of it. */
size_t samples_bytes(const struct samples *samples);

#ifdef HAK_DEBUG
bool samples_are_valid(const struct samples *samples);
#endif

#endif
