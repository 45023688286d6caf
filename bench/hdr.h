/* hdr.h: counts of values in log-linear buckets, laid out as HdrHistogram lays them out, so that its libraries read
 * them: slot s of the counts here is slot s there.
 *
 *   value 0 ............ 2047 | 2048 ...... 4095 | 4096 ...... 8191 | ...
 *   slot  0 ............ 2047 | 2048 .. 3071     | 3072 .. 4095     | ...
 *   width of a slot         1 |                2 |                4 |
 *
 * A slot is at most a 1024th of its values wide, so three significant figures hold. Values of HDR_VALUE_MAX and more
 * go to the last slot that is reached; `max` is exact.
 */
#pragma once

#include <stdint.h>

enum {
  HDR_FIGURES = 3,
  HDR_HALF_BITS = 10, /* 2 * 10^HDR_FIGURES values, up to the next power of two, in steps of 1; half of them */
  HDR_HALF = 1 << HDR_HALF_BITS,
  HDR_VALUE_BITS = 40,
  HDR_SLOTS = (HDR_VALUE_BITS - HDR_HALF_BITS + 1) * HDR_HALF,
};
#define HDR_VALUE_MAX ((1ull << HDR_VALUE_BITS) - 1)
_Static_assert(2 * HDR_HALF >= 2 * 1000, "three figures");

struct hdr {
  uint64_t count, min, max; /* min is of use if count is not 0 */
  uint64_t counts[HDR_SLOTS];
};

static inline uint64_t hdr_slot(uint64_t value) {
  value = value < HDR_VALUE_MAX ? value : HDR_VALUE_MAX;
  uint64_t shift = 63 - HDR_HALF_BITS - (uint64_t)__builtin_clzll(value | (2 * HDR_HALF - 1));
  return shift * HDR_HALF + (value >> shift);
}

static inline void hdr_record(struct hdr *hdr, uint64_t value) {
  hdr->counts[hdr_slot(value)]++;
  hdr->min = hdr->count++ && hdr->min < value ? hdr->min : value;
  hdr->max = hdr->max > value ? hdr->max : value;
}

static inline void hdr_add(struct hdr *sum, const struct hdr *more) {
  if (!more->count)
    return;
  for (uint64_t slot = 0; slot < HDR_SLOTS; slot++)
    sum->counts[slot] += more->counts[slot];
  sum->min = sum->count && sum->min < more->min ? sum->min : more->min;
  sum->max = sum->max > more->max ? sum->max : more->max;
  sum->count += more->count;
}
