/* purge_policy.h: how much free memory stays resident. Pure: numbers in, numbers out.
 *
 * Two bounds on resident free bytes. Below `keep` nothing is purged. Above it, memory goes when it has
 * been unused for the profile's delay. What exceeds the recent peak of demand by more than `keep`
 * goes at once: the program never needed so much at a time, so it is fragmentation, and keeping it
 * saves no fault. */
#ifndef HAK_POLICY_PURGE_POLICY_H
#define HAK_POLICY_PURGE_POLICY_H

#include "base/words.h"

struct demand {
  uint64_t window_start_ms;
  size_t peak_bytes;          /* of taken bytes, in this window */
  size_t previous_peak_bytes; /* in the one before */
};

/* Notes that `taken_bytes` are in use now; windows are window_ms long. */
void demand_note(struct demand *demand, size_t taken_bytes, uint64_t now_ms, uint64_t window_ms);

/* Resident free bytes that are kept however old: keep_bytes, and an eighth of what is taken. */
size_t purge_keep(size_t keep_bytes, size_t taken_bytes);

/* Resident free bytes that are kept for the delay: never less than purge_keep. Large objects of changing
 * sizes never fit into what the last ones left without a rest, so half of their recent peak is no excess.
 * demand: of everything, large: of large objects. */
size_t purge_keep_for_now(const struct demand *demand, const struct demand *large, size_t keep_bytes,
                          size_t taken_bytes);

/* Do slabs of slab_bytes, of which taken_bytes are in use, hold so much free memory that their free pages
 * should go: more than is kept, and a quarter of what is in use besides? */
bool slabs_waste(size_t slab_bytes, size_t taken_bytes, size_t keep_bytes);

#endif
