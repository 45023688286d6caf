#include "threads/spare.h"

#include "base/size_class.h"
#include "large/large.h"
#include "os/fault.h"
#include "os/os.h"

#define SPARE_BYTES_MAX ((size_t)16 * 1024) /* so that a chunk has several blocks */
#define STATE_WORD (BITMAP_WORDS - 1)
#define LINK_WORD (BITMAP_WORDS - 2)
#define BLOCKS_MAX (64 * LINK_WORD) /* the bits before the link */

#define FREED_ONE ((uint64_t)1 << 32)
static uint32_t given_count(uint64_t state) { return (uint32_t)state; }
static uint32_t freed_count(uint64_t state) { return (uint32_t)(state >> 32); }

#define LOOKS_MAX 16u /* chunks tried for one with room */

/* The chunks of each class, newest first; and the chunk that was last seen with room. */
static _Atomic(char *) chunks[HAK_CLASS_COUNT], ready[HAK_CLASS_COUNT];

static _Atomic uint64_t *word_of(const char *chunk, size_t index) {
  return (_Atomic uint64_t *)(void *)(map_bitmap(chunk) + index);
}
static _Atomic uint64_t *state_of(const char *chunk) { return word_of(chunk, STATE_WORD); }

static uint32_t blocks_in(unsigned cls) { return (uint32_t)min_size(UNIT_BYTES / class_bytes(cls), BLOCKS_MAX); }

static uint32_t spare_entry(unsigned cls) { return entry_of(0, cls) | ENTRY_SPARE; }

static void *chunk_take(char *chunk, unsigned cls) {
  uint64_t state = atomic_load_explicit(state_of(chunk), memory_order_acquire);
  while (given_count(state) < blocks_in(cls))
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
  char *first = atomic_load_explicit(&chunks[cls], memory_order_acquire);
  do
    store_relaxed(word_of(chunk, LINK_WORD), (uintptr_t)first);
  while (
      !atomic_compare_exchange_weak_explicit(&chunks[cls], &first, chunk, memory_order_acq_rel, memory_order_acquire));
  return chunk;
}

static void *small_take(unsigned cls) {
  char *chunk = atomic_load_explicit(&ready[cls], memory_order_acquire);
  void *block = chunk ? chunk_take(chunk, cls) : NULL;
  chunk = atomic_load_explicit(&chunks[cls], memory_order_acquire);
  for (unsigned looks = 0; block == NULL && chunk != NULL && looks < LOOKS_MAX; looks++) {
    block = chunk_take(chunk, cls);
    chunk = (char *)(uintptr_t)load_relaxed(word_of(chunk, LINK_WORD));
  }
  while (block == NULL && (chunk = chunk_make(cls)) != NULL)
    block = chunk_take(chunk, cls);
  return block;
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

/* The last block came back. No other thread reads the bits until the state is set. */
static void chunk_restart(char *chunk, unsigned cls) {
  os_purge(chunk, UNIT_BYTES);
  for (size_t i = 0; i < LINK_WORD; i++)
    store_relaxed(word_of(chunk, i), 0);
  atomic_store_explicit(state_of(chunk), 0, memory_order_release);
  atomic_store_explicit(&ready[cls], chunk, memory_order_release);
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
  if (freed_count(state) == blocks_in(entry_class(entry)))
    chunk_restart(chunk, entry_class(entry));
}
