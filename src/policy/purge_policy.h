/* purge_policy.h: how much free memory stays resident. Pure: numbers in, numbers out.
 *
 * There are two bounds on resident free bytes. Up to `keep` nothing is purged. Above it, memory decays: it goes back
 * when it was unused for the preset's purge delay. Memory that exceeds the recent peak of demand by more than `keep`
 * goes back at once: the program never needed so much at a time, so it is fragmentation, and keeping it saves no page
 * fault. */
#ifndef HAK_POLICY_PURGE_POLICY_H
#define HAK_POLICY_PURGE_POLICY_H

#include "base/words.h"

struct demand {
  uint64_t window_start_ms;
  size_t peak_bytes;          /* peak of taken bytes in this window */
  size_t previous_peak_bytes; /* peak in the window before */
};

/* Notes that `taken_bytes` are in use now. Windows are window_ms long. */
void demand_note(struct demand *demand, size_t taken_bytes, uint64_t now_ms, uint64_t window_ms);

/* Returns the resident free bytes that are kept however old: keep_bytes and an eighth of what is taken. */
size_t purge_keep(size_t keep_bytes, size_t taken_bytes);

/* Returns the resident free bytes that are kept until the purge delay is over, at least purge_keep. Large objects of
 * changing sizes leave gaps, so half of their recent peak counts as demand too. demand: of everything; large: of large
 * objects. */
size_t purge_keep_for_now(const struct demand *demand, const struct demand *large, size_t keep_bytes,
                          size_t taken_bytes);

/* Tells whether the free pages of slabs should go back: of slab_bytes, taken_bytes are in use, and the free bytes
 * exceed keep_bytes plus a quarter of what is in use. */
bool slabs_waste(size_t slab_bytes, size_t taken_bytes, size_t keep_bytes);

#endif
