#include "pages/fresh.h"

#include "os/os.h"
#include "pages/page_map.h"

/* Forks of this process, and of those whose child it is, and 1: a row that says 0 was never fresh. parent_id: the
 * process that forked this one, -1: none did. Both lie in .data: a fork writes there anyway. */
static _Atomic uint32_t forks = 1;
static _Atomic int parent_id = -1;

void fresh_before_fork(void) { atomic_fetch_add_explicit(&forks, 1, memory_order_relaxed); }
void fresh_in_child(int parent) { store_relaxed(&parent_id, parent); }
uint32_t fresh_forks(void) { return load_relaxed(&forks); }

/* A process whose parent has ended gets another one. */
bool fresh_is_alone(void) {
  int parent = load_relaxed(&parent_id);
  return fresh_forks() == 1 || (!os_has_children() && (parent == -1 || parent != os_parent_id()));
}

bool fresh_row(const struct map_row *row) { return load_relaxed(&row->forks) == load_relaxed(&forks); }
void fresh_row_set(struct map_row *row) {
  if (row != NULL)
    store_relaxed(&row->forks, load_relaxed(&forks));
}

void fresh_rows_set(const char *base, const char *end, const char *free_end) {
  const char *at = (const char *)round_up((uintptr_t)base, ROW_BYTES);
  for (; at < end && (size_t)(free_end - at) >= ROW_BYTES; at += ROW_BYTES)
    fresh_row_set(map_row(at));
}
