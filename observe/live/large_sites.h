/* large_sites.h: bytes of large objects by call site, for the option `live`.
 *
 * A table has LARGE_SITES places and one more for all other sites. A site keeps its place. Numbers are changed and read
 * without a lock, so each is right by itself.
 */
#pragma once

#include "base/words.h"

#define LARGE_SITES 128u

/* hash: of the site (large/big_cache.h); site: its address, 0 if only the hash is at hand. objects: 1: one was taken,
 * -1: freed, 0: resized. bytes: before, wanted: from now on. */
void large_site_changed(uint32_t hash, uintptr_t site, int objects, size_t bytes, size_t wanted);

struct large_site {
  uintptr_t address; /* the call site; 0: all sites without a place */
  size_t live_count, live_bytes;
  uint64_t taken_count, taken_bytes; /* so far */
};
/* Reads place `index`, up to LARGE_SITES, which is that of all other sites. False if it is free. */
bool large_site_get(unsigned index, struct large_site *out);
