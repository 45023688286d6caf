/* slots.h: guarded blocks: each lies alone on its pages, between pages without access.
 *
 *   | gap, 64 KiB | slot, 64 KiB | gap | slot | ... | gap |      SLOTS slots, 32 MiB of address space
 *
 * A block lies at the begin of its slot's accessible pages or at their end, at random. The rest of these pages is
 * filled with a byte that is checked at the free. A freed block's pages go back and lose access. At most half of the
 * slots are in use, and a free one is drawn among the older half of the free ones: so at least SLOTS / 4 other blocks
 * are freed before a slot is used again.
 *   G1  only one thread changes a slot's state to SLOT_ENDING, by an atomic exchange; block and stacks stay until the
 *       slot is used again
 *   G2  the lock is taken in slow paths only, and only tried; under it, the heap profile's is taken
 */
#pragma once

#include "base/words.h"

#define SLOTS 256u
#define SLOTS_LIVE_MAX (SLOTS / 2)
#define SLOT_BYTES_MAX ((size_t)64 << 10)
#define SLOT_DEPTH_MAX 32u /* frames of a stack */

struct slot_stack {
  int thread;
  unsigned depth;
  uintptr_t addresses[SLOT_DEPTH_MAX];
};

enum slot_state {
  SLOT_FREE, /* or never used: then block is NULL */
  SLOT_LIVE,
  SLOT_ENDING, /* a thread is freeing it */
  SLOT_ENDED,  /* freed, not in the queue of free slots yet */
};

struct slot {
  _Atomic uint32_t state;
  char *block;
  size_t size;
  unsigned char filler;
  bool is_in_profile; /* the heap profile has it as a sample */
  struct slot_stack allocated, freed;
};

/* Reserves the slots, once. False: no memory. slot_take does so too. */
bool slots_make(void);

/* Takes a slot for a block of 1 to SLOT_BYTES_MAX bytes; NULL if none is free, or no memory. The caller fills in
 * `allocated`, then calls slot_publish. */
struct slot *slot_take(size_t size, size_t alignment);
void slot_publish(struct slot *slot);

/* Returns the slot whose pages, or the gap next to them, contain the address; NULL if it lies elsewhere, or there no
 * slot was used. */
struct slot *slot_of(uintptr_t address);

/* Makes the state SLOT_ENDING. False: it was not live. */
bool slot_claim(struct slot *slot);
/* Returns the first byte around the block that is not the filler, NULL if all are. The state is SLOT_ENDING. */
const char *slot_written(const struct slot *slot);
/* Takes pages and access from a block. The state is SLOT_ENDING. is_inside: in a slow path, which gives the slot
 * back now; else a later call does. */
void slot_end(struct slot *slot, bool is_inside);

void slots_in_child(void);

/* Sets the rows guarded_bytes and guarded_blocks. */
struct hak_stats;
void slots_stats(struct hak_stats *out);
