/* record.h: the record of a slab, and its list. Only this folder includes it. The lock of the slab's pool is held. */
#pragma once

#include "base/bits.h"
#include "base/list.h"
#include "pages/page_map.h"
#include "slab/slab.h"

struct slab {
  char *base;                   /* const while open */
  uint64_t *bitmap;             /* const while open */
  struct slab *next, *previous; /* in its list */
  uint32_t free_count;
  uint32_t list_until; /* slab_got_emptier is due when free_count exceeds this */
  uint32_t hint;       /* first word that may have a free block */
  uint8_t class;
  uint8_t list;     /* NO_LIST: its holes are being purged, or it is being opened */
  uint8_t rest;     /* enum slab_rest */
  uint32_t seen_ms; /* low bits of the time of the look that found it so, if REST_SEEN */
};

STACK_OF(slab_list, slab, next, previous)
#define NO_LIST (FULLNESS_LISTS + 1)

/* Whether the slab is in use, and whether its holes are purged. Purging them once is enough until a block is put back.
 */
enum slab_rest {
  REST_NONE,            /* a block was taken or put back since the last look */
  REST_SEEN,            /* none was since seen_ms */
  REST_PURGED,          /* the holes are purged, and no block was put back since */
  REST_PURGING,         /* from here on: its holes are being purged */
  REST_PURGING_STIRRED, /* and a block was put back meanwhile */
};

_Static_assert(sizeof(struct slab) <= RECORD_BYTES, "a slab's record fits the leaf");
_Static_assert(HAK_CLASS_COUNT <= 256, "a class fits its byte");
_Static_assert(UNIT_BYTES / BLOCK_ALIGNMENT <= BITMAP_WORDS * 64, "the smallest blocks fit a unit's bitmap");

static inline bool slab_is_empty(const struct slab *slab) {
  return slab->free_count == size_classes[slab->class].block_count;
}

/* S3 */
static inline bool slab_has_list(const struct slab_set *set, unsigned list) {
  return list < FULLNESS_FULL || (list == FULLNESS_FULL && set->lists_full);
}

static inline void slab_list_leave(struct slab_set *set, struct slab *slab) {
  if (UNLIKELY(slab == set->walk.next))
    set->walk.next = slab->next;
  if (slab_has_list(set, slab->list))
    slab_list_remove(&set->classes[slab->class].lists[slab->list], slab);
  slab->list = NO_LIST;
}

/* Moves the slab to the list for its free_count, or closes it if it is empty. Call when free_count exceeds list_until,
 * and after its holes were purged. */
void slab_got_emptier(struct slab_set *set, struct slab *slab);
