/* purge_policy.h: how much free memory stays resident. Pure: numbers in, numbers out.
 *
 * Free memory goes when it has been unused for the preset's purge delay, but for `purge_keep`, which stays. Younger
 * memory goes for limits, targets, pressure and trims only. */
#ifndef HAK_POLICY_PURGE_POLICY_H
#define HAK_POLICY_PURGE_POLICY_H

#include "base/words.h"

/* Resident free bytes that are kept however old, while the program works: keep_bytes, and an eighth of what is
 * taken. */
static inline size_t purge_keep(size_t keep_bytes, size_t taken_bytes) { return keep_bytes + taken_bytes / 8; }

#endif
