#include "heap/ids.h"

#include "os/fault.h"
#include "pages/metadata.h"

#define CHUNK_HEAPS 256u
#define CHUNKS_MAX 4095u /* a million threads at a time */

#define WORD_HEAPS 64u

struct chunk {
  struct heap *heaps[CHUNK_HEAPS];
  _Atomic uint64_t owned[CHUNK_HEAPS / WORD_HEAPS];
};

static struct {
  _Atomic uint32_t count;
  _Atomic(struct chunk *) chunks[CHUNKS_MAX];
} ids SPARSE;

uint32_t heap_count(void) { return atomic_load_explicit(&ids.count, memory_order_acquire); }

static struct chunk *chunk_of(uint32_t id) {
  return atomic_load_explicit(&ids.chunks[(id - 1) / CHUNK_HEAPS], memory_order_acquire);
}

struct heap *heap_by_id(uint32_t id) {
  hak_assert(id >= 1 && id <= heap_count());
  return chunk_of(id)->heaps[(id - 1) % CHUNK_HEAPS];
}

static _Atomic uint64_t *owned_word(uint32_t id) { return &chunk_of(id)->owned[(id - 1) % CHUNK_HEAPS / WORD_HEAPS]; }

void heap_mark_owned(uint32_t id, bool owned) {
  _Atomic uint64_t *word = owned_word(id);
  uint64_t bit = (uint64_t)1 << (id - 1) % WORD_HEAPS;
  if (owned)
    atomic_fetch_or_explicit(word, bit, memory_order_relaxed);
  else
    atomic_fetch_and_explicit(word, ~bit, memory_order_release);
}

bool heap_is_owned(uint32_t id) {
  return (atomic_load_explicit(owned_word(id), memory_order_acquire) >> (id - 1) % WORD_HEAPS & 1) != 0;
}

COLD struct heap *heap_from(uint32_t id, bool owned) {
  for (uint32_t count = heap_count(); id <= count; id = (id - 1) / WORD_HEAPS * WORD_HEAPS + WORD_HEAPS + 1) {
    uint64_t bits = atomic_load_explicit(owned_word(id), memory_order_acquire);
    bits = (owned ? bits : ~bits) >> (id - 1) % WORD_HEAPS;
    if (bits == 0)
      continue;
    id += (uint32_t)__builtin_ctzl(bits);
    return id <= count ? heap_by_id(id) : NULL;
  }
  return NULL;
}

bool heap_ids_grow(void) {
  uint32_t count = heap_count();
  if (count == CHUNK_HEAPS * CHUNKS_MAX)
    return false;
  _Atomic(struct chunk *) *chunk = &ids.chunks[count / CHUNK_HEAPS];
  if (load_relaxed(chunk) != NULL)
    return true;
  struct chunk *fresh = metadata_take_forever(sizeof *fresh);
  if (fresh != NULL)
    atomic_store_explicit(chunk, fresh, memory_order_release);
  return fresh != NULL;
}

void heap_ids_add(struct heap *heap) {
  chunk_of(heap->id)->heaps[(heap->id - 1) % CHUNK_HEAPS] = heap;
  heap_mark_owned(heap->id, true);
  atomic_store_explicit(&ids.count, heap->id, memory_order_release);
}
