#include "map/arena.h"

#include "base/options.h"
#include "map/page_map.h"
#include "os/os.h"

/* Accessible memory grows with the heap: few system calls for a big one, little charged for a small one. */
#define COMMIT_BYTES_MIN ((size_t)8 << 20)
#define COMMIT_BYTES_MAX ((size_t)64 << 20)
#define ARENA_BYTES_MIN ((size_t)64 << 20)

unsigned char arena_mark(const void *address) {
  return map_covers(address) ? __atomic_load_n(map_arena_mark(address), __ATOMIC_RELAXED) : 0;
}

bool address_in_arena(const void *address) { return arena_mark(address) != 0; }

void arena_mark_set(char *base, size_t bytes, unsigned char mark) {
  for (size_t i = 0; i < bytes; i += SUPERSLAB_BYTES)
    __atomic_store_n(map_arena_mark(base + i), mark, __ATOMIC_RELAXED);
}

/* As much as all arenas before it, so that a small program reserves little (mlockall, and limits set later,
 * count it). Where address space is limited, less, so that mappings keep a share. */
bool arena_reserve(struct arena *arena, size_t bytes_min) {
  bytes_min = round_up(bytes_min, SUPERSLAB_BYTES);
  size_t limit = os_address_space_limit();
  size_t size =
      min_size((size_t)option_value(OPTION_RESERVE_MB) << 20, max_size(ARENA_BYTES_MIN, arena->reserved_bytes));
  if (limit != SIZE_MAX)
    size = min_size(size, round_down(limit / 64, SUPERSLAB_BYTES));
  size = max_size(round_up(size, SUPERSLAB_BYTES), bytes_min);
  char *base = NULL;
  while ((base = os_reserve(size, SUPERSLAB_BYTES)) == NULL && size > bytes_min)
    size = max_size(round_up(size / 8, SUPERSLAB_BYTES), bytes_min);
  if (base == NULL)
    return false;
  arena->next = arena->committed = base;
  arena->end = base + size;
  arena->reserved_bytes += size;
  arena->reservations++;
  return true;
}

bool arena_commit(struct arena *arena, char *until, unsigned char mark, bool has_huge) {
  if (until <= arena->committed)
    return true;
  size_t needed = round_up((uintptr_t)until, SUPERSLAB_BYTES) - (uintptr_t)arena->committed;
  size_t left = (size_t)(arena->end - arena->committed);
  size_t step = min_size(left, max_size(needed, max_size(arena->commit_step, COMMIT_BYTES_MIN)));
  if (!os_commit(arena->committed, step)) {
    step = needed;
    if (!os_commit(arena->committed, step))
      return false;
  }
  if (!map_cover(arena->committed, step)) /* accessible for nothing; the next try commits it again */
    return false;
  if (has_huge)
    os_huge(arena->committed, step);
  arena_mark_set(arena->committed, step, mark);
  arena->committed += step;
  arena->committed_bytes += step;
  arena->commits++;
  arena->commit_step = min_size(step * 2, COMMIT_BYTES_MAX);
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
