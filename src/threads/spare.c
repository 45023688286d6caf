#include "threads/spare.h"

#include "base/size_class.h"
#include "large/large.h"
#include "os/fault.h"
#include "os/os.h"

#define SPARE_BYTES_MAX ((size_t)16 * 1024) /* so that a chunk has several blocks */
#define STATE_WORD (BITMAP_WORDS - 1)
#define LINK_WORD (BITMAP_WORDS - 2)
#define BLOCKS_MAX (64 * LINK_WORD) /* the bits before the link */

/* A chunk's state. Retired: no block is given out any more. */
#define FREED_ONE ((uint64_t)1 << 32)
#define RETIRED ((uint64_t)1 << 31)
static uint32_t given_count(uint64_t state) { return (uint32_t)(state & (RETIRED - 1)); }
static uint32_t freed_count(uint64_t state) { return (uint32_t)(state >> 32); }
static bool is_over(uint64_t state) { return (state & RETIRED) != 0 && given_count(state) == freed_count(state); }

/* The chunk that each class is served from; and a stack of unused ones, whose top has in its low bits how often it has
 * changed. */
static _Atomic(char *) present[HAK_CLASS_COUNT];
static _Atomic uintptr_t unused[HAK_CLASS_COUNT];
#define CHANGES ((uintptr_t)UNIT_BYTES - 1)

static _Atomic uint64_t *word_of(const char *chunk, size_t index) {
  return (_Atomic uint64_t *)(void *)bitmap_word(map_bitmap(chunk), index);
}
static _Atomic uint64_t *state_of(const char *chunk) { return word_of(chunk, STATE_WORD); }
static _Atomic uint64_t *link_of(const char *chunk) { return word_of(chunk, LINK_WORD); }

static uint32_t blocks_in(unsigned cls) { return (uint32_t)min_size(UNIT_BYTES / class_bytes(cls), BLOCKS_MAX); }

static uint32_t spare_entry(unsigned cls) { return entry_of(0, cls) | ENTRY_SPARE; }

static bool unused_change(unsigned cls, uintptr_t *top, const char *chunk) {
  return atomic_compare_exchange_weak_explicit(&unused[cls], top, (uintptr_t)chunk | ((*top + 1) & CHANGES),
                                               memory_order_acq_rel, memory_order_acquire);
}

static void unused_push(char *chunk, unsigned cls) {
  uintptr_t top = atomic_load_explicit(&unused[cls], memory_order_acquire);
  do
    store_relaxed(link_of(chunk), top & ~CHANGES);
  while (!unused_change(cls, &top, chunk));
}

static char *unused_pop(unsigned cls) {
  uintptr_t top = atomic_load_explicit(&unused[cls], memory_order_acquire);
  while ((top & ~CHANGES) != 0)
    if (unused_change(cls, &top, (char *)(uintptr_t)load_relaxed(link_of((char *)(top & ~CHANGES)))))
      return (char *)(top & ~CHANGES);
  return NULL;
}

static void *chunk_take(char *chunk, unsigned cls) {
  uint64_t state = atomic_load_explicit(state_of(chunk), memory_order_acquire);
  while ((state & RETIRED) == 0 && given_count(state) < blocks_in(cls))
    if (atomic_compare_exchange_weak_explicit(state_of(chunk), &state, state + 1, memory_order_acq_rel,
                                              memory_order_acquire))
      return chunk + given_count(state) * class_bytes(cls);
  return NULL;
}

static char *chunk_make(unsigned cls) {
  char *chunk = large_alloc_unlocked(UNIT_BYTES, UNIT_BYTES);
  if (chunk == NULL)
    return NULL;
  for (size_t i = 0; i < BITMAP_WORDS; i++) /* a former slab may have left bits */
    store_relaxed(word_of(chunk, i), 0);
  map_entries_set(chunk, 1, spare_entry(cls));
  return chunk;
}

/* All blocks of the chunk were freed, and it gives out no more. No other thread reads the bits before it is taken
 * again. */
static void chunk_over(char *chunk, unsigned cls) {
  os_purge(chunk, UNIT_BYTES);
  for (size_t i = 0; i < LINK_WORD; i++)
    store_relaxed(word_of(chunk, i), 0);
  atomic_store_explicit(state_of(chunk), 0, memory_order_release);
  unused_push(chunk, cls);
}

static void chunk_retire(char *chunk, unsigned cls) {
  if (is_over(atomic_fetch_or_explicit(state_of(chunk), RETIRED, memory_order_acq_rel) | RETIRED))
    chunk_over(chunk, cls);
}

/* The thread that replaces the present chunk retires it. Of several the others keep theirs for later. */
static void *small_take(unsigned cls) {
  for (;;) {
    char *chunk = atomic_load_explicit(&present[cls], memory_order_acquire), *next;
    void *block = chunk != NULL ? chunk_take(chunk, cls) : NULL;
    if (block != NULL)
      return block;
    if ((next = unused_pop(cls)) == NULL && (next = chunk_make(cls)) == NULL)
      return NULL;
    if (!atomic_compare_exchange_strong_explicit(&present[cls], &chunk, next, memory_order_acq_rel,
                                                 memory_order_relaxed))
      unused_push(next, cls);
    else if (chunk != NULL)
      chunk_retire(chunk, cls);
  }
}

void *spare_take(size_t size, size_t alignment, unsigned cls) {
  if (cls != 0 && class_bytes(cls) <= SPARE_BYTES_MAX)
    return small_take(cls);
  if (cls != 0) { /* the class serves the alignment */
    size = class_bytes(cls);
    alignment = size & -size;
  }
  return large_alloc_unlocked(size, alignment);
}

void spare_give(void *block, uint32_t entry) {
  size_t at = (uintptr_t)block & (UNIT_BYTES - 1), bytes = class_bytes(entry_class(entry));
  char *chunk = (char *)block - at;
  uint32_t index = (uint32_t)(at / bytes);
  if (at % bytes != 0 || index >= given_count(atomic_load_explicit(state_of(chunk), memory_order_acquire)))
    fault_not_a_block(block);
  uint64_t bit = (uint64_t)1 << index % 64;
  if (atomic_fetch_or_explicit(word_of(chunk, index / 64), bit, memory_order_acq_rel) & bit)
    fault_double_free(block);
  uint64_t state = atomic_fetch_add_explicit(state_of(chunk), FREED_ONE, memory_order_acq_rel) + FREED_ONE;
  if (is_over(state))
    chunk_over(chunk, entry_class(entry));
}
