/* view.h: what has been learned, as it lies in memory, and as `hak policy show` reads it from outside.
 *
 * A reader finds the mark in the writable memory of the module that hakmem is part of, copies everything, and takes the
 * copy for whole if `changes` was even and the same before and after.
 */
#ifndef HAK_LEARN_VIEW_H
#define HAK_LEARN_VIEW_H

#include "policy/site_policy.h"

#define LEARNED_MODULES 64u
#define LEARNED_NAME_BYTES 28u

/* A site: a module's tag, and the offset of the return address in it. Tag 0: the address is in no known module, and
 * means nothing in another process. */
#define LEARNED_OFFSET_BITS 40u
#define LEARNED_TAG_BITS 24u
#define LEARNED_TAG_SMALL ((1u << LEARNED_TAG_BITS) - 1) /* slabs: sites of none, ranges of blocks */
static inline uint64_t learned_site_of(uint32_t tag, uint64_t offset) {
  return (uint64_t)tag << LEARNED_OFFSET_BITS | (offset & (((uint64_t)1 << LEARNED_OFFSET_BITS) - 1));
}
static inline uint32_t learned_tag_of(uint64_t site) { return (uint32_t)(site >> LEARNED_OFFSET_BITS); }
static inline uint64_t learned_offset_of(uint64_t site) { return site & (((uint64_t)1 << LEARNED_OFFSET_BITS) - 1); }
#define LEARNED_SITE_SMALL learned_site_of(LEARNED_TAG_SMALL, 0)

/* For people: what a tag stands for. */
struct learned_module {
  uint32_t tag; /* 0: the place is free */
  char name[LEARNED_NAME_BYTES];
};

struct learned_view {
  char mark[16]; /* LEARNED_MARK once there is something to see */
  uint32_t view_bytes, arm_bytes;
  uint32_t arm_count;
  _Atomic uint32_t changes; /* odd while something changes */
  struct site_costs costs;
  struct site_table table;
  struct learned_module modules[LEARNED_MODULES];
};
#define LEARNED_MARK "hakmem learned\n"
_Static_assert(sizeof LEARNED_MARK == 16, "the mark fills its place");

#endif
