/* Holes: OS pages that lie wholly in free blocks (slab/slab.h says how they are given back). */
#include "slab/record.h"

#include "os/os.h"

/* Returns the first block from `from` on that is free, or is not; `end` if there is none before it. */
static size_t block_find(const struct slab *slab, size_t from, size_t end, bool is_free) {
  const size_t line_blocks = 64 * BITMAP_LINE_WORDS;
  while (from < end) {
    size_t line = round_down(from, line_blocks), behind = min_size(end, line + line_blocks);
    const uint64_t *words = bitmap_word(slab->bitmap, line / 64);
    from = line + bit_find(words, from - line, behind - line, is_free);
    if (from < behind)
      break;
  }
  return min_size(from, end);
}

/* Adds a slab's holes to the batch. False if they do not all fit. */
static bool holes_find(const struct slab *slab, struct hole_batch *batch) {
  size_t bytes = class_bytes(slab->class);
  size_t blocks = size_classes[slab->class].block_count;
  size_t page = os_page_bytes();
  unsigned count = batch->hole_count;
  for (size_t i = block_find(slab, 0, blocks, true), behind; i < blocks; i = block_find(slab, behind, blocks, true)) {
    behind = block_find(slab, i, blocks, false);
    size_t start = round_up(i * bytes, page);
    size_t end = round_down(behind * bytes, page);
    if (end <= start)
      continue;
    if (count == HOLES_MAX)
      return false;
    batch->holes[count++] = (struct hole){.start = slab->base + start, .bytes = end - start};
  }
  batch->hole_count = count;
  return true;
}

/* Tells whether the slab was left alone for the delay. Its age counts from the first look after its last use. */
static bool is_settled(struct slab *slab, const struct hole_batch *batch) {
  if (slab->rest == REST_NONE) {
    slab->rest = REST_SEEN;
    slab->seen_ms = batch->now_ms;
  }
  return batch->now_ms - slab->seen_ms >= batch->delay_ms;
}

/* Adds the holes of the walk's list to the batch. False if the batch is full, or *looks is 0. */
static bool holes_take_list(struct slab_set *set, struct hole_batch *batch, unsigned *looks) {
  struct hole_walk *walk = &set->walk;
  for (struct slab *slab; (slab = walk->next) != NULL; --*looks) {
    unsigned before = batch->hole_count;
    bool is_due = slab->rest != REST_PURGED && (batch->search == HOLES_ALL || is_settled(slab, batch));
    if (*looks == 0 || (is_due && !holes_find(slab, batch)))
      return false;
    walk->next = slab->next;
    if (is_due && batch->hole_count == before) {
      slab->rest = REST_PURGED;
    } else if (is_due) {
      slab_list_leave(set, slab);
      slab->rest = REST_PURGING;
      batch->slabs[batch->slab_count++] = slab;
    }
  }
  return true;
}

/* The smaller the blocks, the emptier a slab must be to have whole pages free. */
static unsigned first_list(unsigned cls, enum hole_search search) {
  if (search == HOLES_ALL)
    return 0;
  size_t in_page = os_page_bytes() / class_bytes(cls);
  return in_page >= 16 ? 3 : in_page >= 4 ? 2 : in_page >= 2 ? 1 : 0;
}

/* The sets of thousands of hak_heaps may have no slab. */
COLD void slab_set_holes_begin(struct slab_set *set) {
  set->walk = (struct hole_walk){.class = set->slab_bytes > 0 ? 1 : HAK_CLASS_COUNT};
}

/* A slab that leaves the list takes the walk along to the next one (slab_list_leave); one that enters a list is put to
 * its front, behind the walk. */
COLD bool slab_set_holes_take(struct slab_set *set, struct hole_batch *batch) {
  struct hole_walk *walk = &set->walk;
  unsigned looks = HOLE_LOOKS_MAX;
  batch->slab_count = batch->hole_count = 0;
  for (; walk->class < HAK_CLASS_COUNT; walk->class++, walk->list = 0) {
    walk->list = (unsigned)max_size(walk->list, first_list(walk->class, batch->search));
    for (; walk->list < FULLNESS_LISTS; walk->list++, walk->is_inside = false) {
      if (!walk->is_inside)
        walk->next = set->classes[walk->class].lists[walk->list];
      walk->is_inside = true;
      if (!holes_take_list(set, batch, &looks) || batch->slab_count > 0)
        return true;
    }
  }
  return false;
}

COLD void slab_set_holes_give(struct slab_set *set, const struct hole_batch *batch) {
  for (unsigned i = 0; i < batch->slab_count; i++) {
    struct slab *slab = batch->slabs[i];
    slab->rest = slab->rest == REST_PURGING ? REST_PURGED : REST_NONE;
    slab_got_emptier(set, slab);
  }
}
