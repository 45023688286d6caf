/* huge_policy.h: when to ask for huge pages, and when to stop for a while. Pure: numbers in, numbers out.
 *
 * Huge pages have two costs. The kernel may have to compact memory first, and the program waits meanwhile; the time of
 * a first touch shows this. Then there is a back-off, a time without huge pages. It doubles each time, up to five
 * minutes. A quick touch afterwards halves it.
 *
 * And a range that is little used still takes 2 MiB per huge page. So large objects need evidence: huge pages are
 * earned by ranges on small pages that were seen densely written. A range on huge pages shows nothing, so some ranges
 * must be on small pages all the time.
 *
 * The initial state is all zeros. The caller's lock guards it. The rules are for systems with huge pages of 2 MiB;
 * elsewhere the caller passes HUGE_OFF. */
#pragma once

#include "base/options.h"

/* With other page sizes a huge page is not 2 MiB, and no huge pages are asked for. */
#define SMALL_PAGE_BYTES 4096u

/* Heaps and ranges smaller than these get no huge pages. */
#define HUGE_HEAP_BYTES_MIN ((size_t)8 << 20)
#define HUGE_RANGE_BYTES_MIN ROW_BYTES

/* The first touch of a huge page is a stall if it takes longer than HUGE_STALL_NS, or if it is the HUGE_SLOW_MAX-th in
 * a row that takes longer than HUGE_SLOW_NS. Clearing 2 MiB takes 0.1 to 1 ms, touching 512 small pages about 0.8
 * ms. */
#define HUGE_STALL_NS ((uint64_t)4000 * 1000)
#define HUGE_SLOW_NS ((uint64_t)1500 * 1000)
#define HUGE_SLOW_MAX 2

/* The first back-off after a stall is HUGE_STALL_TIMES as long as the stall, within these bounds: a process that was
 * stopped meanwhile saw no stall. */
#define HUGE_STALL_TIMES 16u
#define HUGE_STALL_SPAN_MS ((uint64_t)64)
#define HUGE_STALL_SPAN_MS_MAX ((uint64_t)1024)

struct huge_state {
  uint64_t until_ms;    /* no huge pages before */
  uint64_t span_ms;     /* length of the last back-off, halved by each quick touch since */
  uint32_t slow_in_row; /* consecutive slow touches */
  size_t earned_bytes;  /* huge pages that large objects may still touch */
  size_t lent_bytes;    /* the same for long ones when nothing is earned: short ones are cheaper evidence */
};

/* Tells whether this range may have huge pages. large: it is for large objects, not slabs. heap_bytes: the bytes of
 * large objects, or all that is held. */
bool huge_wanted(const struct huge_state *state, enum huge_mode mode, bool large, size_t heap_bytes, size_t range_bytes,
                 uint64_t now_ms);

/* Slabs of small blocks that fill up come on one huge page after another, so at most this fraction of their heap
 * is resident and unused. */
#define HUGE_SLABS_SHARE 16u

/* Tells whether fresh slabs may be on a huge page. slab_bytes: of all slabs; dense_bytes: of those that were
 * opened since the last such page because their class, of blocks up to a page, has many full ones. */
bool huge_wanted_for_slabs(const struct huge_state *state, enum huge_mode mode, size_t slab_bytes, size_t dense_bytes,
                           uint64_t now_ms);

/* Dense ranges on small pages earn this many times their bytes, but no more than so many times heap_bytes. As many as
 * heap_bytes are lent besides, to ranges longer than HUGE_RANGE_BYTES_MIN. If the next objects are sparse, no more than
 * that is resident for them, and one object. */
#define HUGE_EARNED_TIMES 32u
#define HUGE_EARNED_HEAPS 4u
#define HUGE_UNFILLED_SHARE 8u /* at least 7/8 of a dense range are resident */

/* Notes how much of former ranges on small pages is resident. Returns true if they are dense. */
bool huge_note_written(struct huge_state *state, size_t resident_bytes, size_t range_bytes, size_t heap_bytes);

/* Takes a range's bytes, or what is left of them, from what was earned, or else lent. False: nothing is left. */
bool huge_spend(struct huge_state *state, size_t range_bytes);

/* Dense memory moves to huge pages (pages/collapse.h) for at most this share of the time, and this long at once. */
#define COLLAPSE_SHARE 64u
#define COLLAPSE_NS_MAX ((uint64_t)32 * 1000000)
static inline uint64_t collapse_credit_ns(uint64_t credit_ns, uint64_t elapsed_ns) {
  uint64_t sum_ns = credit_ns + elapsed_ns / COLLAPSE_SHARE;
  return sum_ns < COLLAPSE_NS_MAX ? sum_ns : COLLAPSE_NS_MAX;
}

/* Returns the time from one pass over all rows to the next: longer each time if the pass found nothing to move. */
#define COLLAPSE_REST_MS_MIN 200u
#define COLLAPSE_REST_MS_MAX 16000u
static inline uint64_t collapse_rest_ms(uint64_t rest_ms, bool has_found) {
  uint64_t longer_ms = rest_ms * 2 < COLLAPSE_REST_MS_MAX ? rest_ms * 2 : COLLAPSE_REST_MS_MAX;
  return has_found || longer_ms < COLLAPSE_REST_MS_MIN ? COLLAPSE_REST_MS_MIN : longer_ms;
}

/* Notes that the first touch of a huge page took elapsed_ns. Call it for quick touches too. */
void huge_note_stall(struct huge_state *state, uint64_t elapsed_ns, uint64_t now_ms);
