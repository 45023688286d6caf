#include "pages/arena.h"

#include "base/counters.h"
#include "base/options.h"
#include "os/os.h"
#include "pages/page_map.h"

/* Accessible memory grows in proportion to the heap. So a big heap makes few system calls, and a small one is charged
 * little. With mlockall accessible memory is resident. */
#define COMMIT_BYTES_MAX ((size_t)64 << 20)
#define ARENA_BYTES_MIN ((size_t)64 << 20)
#define COMMIT_SHARE 4 /* a step is this fraction of what is accessible already */

unsigned arena_mark(const void *address) {
  const struct map_row *row = map_covers(address) ? map_row(address) : NULL;
  return row ? atomic_load_explicit(&row->arenas[map_unit_in_row(address)], memory_order_acquire) : 0;
}

bool address_in_arena(const void *address) { return arena_mark(address) != 0; }

void arena_mark_set(char *base, size_t bytes, unsigned mark) {
  for (char *at = base; at < base + bytes;) {
    struct map_row *row = map_row(at);
    for (size_t unit = map_unit_in_row(at); unit < ROW_UNITS && at < base + bytes; unit++, at += UNIT_BYTES)
      atomic_store_explicit(&row->arenas[unit], (uint8_t)mark, memory_order_release);
  }
}

size_t arena_neighbours(const char *base, size_t bytes, unsigned mark) {
  return (size_t)(arena_mark(base - UNIT_BYTES) == mark) + (arena_mark(base + bytes) == mark);
}

static size_t whole_rows(size_t bytes) { return round_up(bytes, ROW_BYTES); }

/* A new arena is as long as all arenas before it together, so a small program reserves little. It is shorter where
 * address space is limited, so that mappings keep a share. If the system refuses, it gets shorter step by step, down to
 * bytes_min. It has bytes_min at once if it leaves no address space for the page map. */
bool arena_reserve(struct arena *arena, size_t bytes_min, size_t alignment, bool has_huge) {
  size_t limit = os_memory_limit();
  size_t needed = whole_rows(bytes_min);
  size_t more = max_size(ARENA_BYTES_MIN, whole_rows(arena->reserved_bytes));
  size_t size = min_size((size_t)option_value(OPTION_RESERVE_MB) << 20, more);
  if (limit != SIZE_MAX)
    size = min_size(size, round_down(limit / 64, ROW_BYTES));
  size = max_size(size, needed);
  char *base = NULL;
  while ((base = os_reserve(size, ROW_BYTES)) == NULL && size > needed)
    size = max_size(whole_rows(size / 8), needed);
  if (base != NULL && !map_cover(base, size)) {
    os_unmap(base, size);
    base = NULL;
  }
  if (base == NULL) {
    size = bytes_min;
    base = os_reserve(size, alignment);
    if (base == NULL)
      return false;
    map_cover(base, size); /* now: later mappings may run out; else arena_commit tries again */
  }
  if (has_huge)
    os_huge(base, size); /* for the whole arena, before any part is accessible: later it would split the mapping */
  arena->next = arena->committed = base;
  arena->end = base + size;
  arena->reserved_bytes += size;
  counter_note(arenas_reserved);
  return true;
}

bool arena_commit(struct arena *arena, char *until, unsigned mark, bool has_ahead) {
  if (until <= arena->committed)
    return true;
  size_t left = (size_t)(arena->end - arena->committed);
  size_t exact = (size_t)(until - arena->committed);
  size_t needed = min_size(left, round_up((uintptr_t)until, ROW_BYTES) - (uintptr_t)arena->committed);
  size_t ahead = whole_rows(min_size(arena->committed_bytes / COMMIT_SHARE, COMMIT_BYTES_MAX));
  size_t step = has_ahead ? min_size(left, max_size(needed, ahead)) : exact;
  while (!os_commit(arena->committed, step)) {
    if (step == exact)
      return false;
    step = step > needed ? needed : exact;
  }
  if (!map_cover(arena->committed, step)) /* the range stays accessible and unused; the next try commits it again */
    return false;
  arena_mark_set(arena->committed, step, mark);
  arena->committed += step;
  arena->committed_bytes += step;
  counter_note(arena_commits);
  return true;
}

char *arena_retire(struct arena *arena, size_t *bytes) {
  char *rest = arena->next;
  *bytes = (size_t)(arena->committed - arena->next);
  size_t reserved = (size_t)(arena->end - arena->committed);
  if (reserved > 0) {
    os_unmap(arena->committed, reserved);
    arena->reserved_bytes -= reserved;
  }
  arena->next = arena->committed = arena->end = NULL;
  return rest;
}
