#include "jemalloc/arenas.h"

#include <errno.h>

static hak_heap *_Atomic heaps[ARENAS_MAX]; /* NULL: free */
static _Atomic unsigned count = 1;
#define ENDING ((hak_heap *)(uintptr_t)&count) /* in place of a heap: a thread ends the arena */
static _Thread_local unsigned current;

unsigned arena_make(void) {
  hak_heap *heap = hak_heap_new(0);
  for (unsigned arena = 1; heap != NULL && arena < ARENAS_MAX; arena++) {
    hak_heap *unused = NULL;
    if (!atomic_compare_exchange_strong(&heaps[arena], &unused, heap))
      continue;
    unsigned before = atomic_load(&count);
    while (before <= arena && !atomic_compare_exchange_weak(&count, &before, arena + 1))
      ;
    return arena;
  }
  hak_heap_destroy(heap);
  return 0;
}

unsigned arena_count(void) { return atomic_load(&count); }

hak_heap *arena_heap(unsigned arena) {
  hak_heap *heap = arena < ARENAS_MAX ? atomic_load(&heaps[arena]) : NULL;
  return heap != ENDING ? heap : NULL;
}

bool arena_exists(unsigned arena) { return arena == 0 || arena_heap(arena) != NULL; }

int arena_end(unsigned arena, bool stays) {
  hak_heap *heap = arena_heap(arena);
  if (heap == NULL || current == arena || !atomic_compare_exchange_strong(&heaps[arena], &heap, ENDING))
    return EFAULT;
  hak_heap *next = stays ? hak_heap_new(0) : NULL;
  bool is_ended = (!stays || next != NULL) && hak_heap_destroy(heap) == 0;
  if (!is_ended)
    hak_heap_destroy(next);
  atomic_store(&heaps[arena], is_ended ? next : heap);
  return is_ended ? 0 : EFAULT;
}

unsigned arena_of_thread(void) { return current; }

int arena_enter(unsigned arena) {
  hak_heap *heap = arena_heap(arena);
  int error = heap != NULL || arena == 0 ? hak_heap_set_default(heap, NULL) : EFAULT;
  if (error == 0)
    current = arena;
  return error == EBUSY ? EAGAIN : error;
}
