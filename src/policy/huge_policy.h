/* huge_policy.h: when to ask for huge pages, and when to leave them alone for a while. Pure: numbers
 * in, numbers out.
 *
 * Huge pages cost in two ways. The kernel may have to compact memory before it has one, and the
 * program stands still meanwhile; the time of a first touch shows it. And a range that is little used
 * takes 2 MiB a huge page all the same. Each of the two ends in a back-off of its own: no huge pages
 * for a second, the next time for two, up to five minutes; a good outcome afterwards halves it.
 *
 * A state of zeros is a good start. The caller's lock guards it. For systems whose huge page is
 * 2 MiB; elsewhere the caller passes HUGE_OFF. */
#ifndef HAK_POLICY_HUGE_POLICY_H
#define HAK_POLICY_HUGE_POLICY_H

#include "base/options.h"

/* No huge pages for a heap or a range smaller than these. */
#define HUGE_HEAP_BYTES_MIN ((size_t)8 << 20)
#define HUGE_RANGE_BYTES_MIN SUPERSLAB_BYTES

/* The first touch of a huge page is a stall if it takes longer than HUGE_STALL_NS; and so is the
 * HUGE_SLOW_MAX-th in a row that takes longer than HUGE_SLOW_NS. Clearing 2 MiB takes 0.1 to 1 ms,
 * touching 512 small pages about 0.8 ms. */
#define HUGE_STALL_NS ((uint64_t)4000 * 1000)
#define HUGE_SLOW_NS ((uint64_t)1500 * 1000)
#define HUGE_SLOW_MAX 2

/* Backs off until until_ms; span_ms: how long the last back-off was, halved since by good outcomes. */
struct huge_back_off {
  uint64_t until_ms;
  uint64_t span_ms;
};

struct huge_state {
  struct huge_back_off stalls;
  struct huge_back_off sparse;
  uint32_t slow_in_row; /* slow touches since the last that was not */
  uint32_t sparse_more; /* sparse ranges beyond the number of well used ones, 0 at least */
};

/* May this range have huge pages? large: it is a large object, not slabs. heap_bytes: of large objects, or all
 * that is held. */
bool huge_wanted(const struct huge_state *state, enum huge_mode mode, bool large, size_t heap_bytes, size_t range_bytes,
                 uint64_t now_ms);

/* The first touch of `bytes` on huge pages took elapsed_ns: to be told of quick ones too. Best measured
 * on one huge page; of more, the mean of a page counts. */
void huge_note_stall(struct huge_state *state, size_t bytes, uint64_t elapsed_ns, uint64_t now_ms);

/* Of a range on huge pages that had time to fill, resident_bytes were used. Sparse is less than half;
 * when four more ranges were sparse than were not, that is an outcome as bad as a stall. */
void huge_note_sparse(struct huge_state *state, size_t resident_bytes, size_t range_bytes, uint64_t now_ms);

#endif
