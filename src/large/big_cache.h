/* big_cache.h: freed large ranges, kept ready for the next request.
 *
 * For sites that ask for one size class again and again: a cached range serves just that class, while a
 * free extent can be cut and joined, which serves sites with changing sizes better. Keyed by size class and
 * call site: a hash table of 256 to 65,536 buckets, chained, any number of ranges a key; what another site
 * freed serves too, if the site's own are used up. Bounded in bytes by the caller, and in age. The table is
 * the only memory it takes; a range is described by its record.
 *   B1  a cached range is in the chain of its key, in the list of its class, and in one of the lists by age
 *   B2  bytes is the sum of their sizes, count their number; usage_free counts the bytes
 * big_cache_is_valid checks both. All functions take the cache's lock.
 */
#ifndef HAK_LARGE_BIG_CACHE_H
#define HAK_LARGE_BIG_CACHE_H

#include "policy/keep_policy.h"

/* The record of a large range, at its first unit. The owner of the object may read and write it, the
 * cache while the range is cached. */
struct large {
  char *base;                      /* const while the range lives */
  uint32_t units;                  /* its length */
  uint32_t site;                   /* hash of the call site */
  uint32_t freed_ms;               /* low bits of the time */
  uint8_t class;                   /* of its length */
  uint8_t keep;                    /* while cached: the list by age it is in */
  bool mapping : 1;                /* a mapping of its own, else an extent */
  bool huge : 1;                   /* huge pages were asked for */
  bool spare : 1;                  /* taken without a lock; nobody counts it by call site, or samples it */
  bool steady : 1;                 /* its site asked for this class some times in a row */
  uint32_t key_next, key_previous; /* unit numbers of the ranges in its chain, 0: none */
  union {
    struct large *class_next; /* while cached */
    uint64_t caller;          /* while the object lives: its call site, as adapt/learned.h knows it */
  };
  struct large *class_previous;
  struct large *newer, *older;
};

static inline size_t large_range_bytes(const struct large *range) { return range->units * UNIT_BYTES; }

/* Classes of length (pages/extent.h); the last one has all that are longer, too. */
#define LARGE_CLASSES 208u
unsigned large_class_of(size_t units);

/* What a range keeps of the address it was asked for from. */
uint32_t site_hash(uintptr_t site);

/* Notes that a site asks for a class; true if it did so a few times in a row. Needs no lock: a note that
 * is lost costs a hit at most. */
bool site_is_steady(uint32_t site, unsigned class);

/* keep: who decides how long the range stays (policy/keep_policy.h). False if there is no memory for the table. */
bool big_cache_put(struct large *range, unsigned keep);

/* The following take ranges out; their bytes are in transit then (budget/usage.h), the caller settles them. Their move
 * ends where they are counted next; that into the cache ends here. */

/* A range of at least `bytes`, and hardly more than an eighth longer, at a multiple of `alignment`; NULL
 * if there is none. The site's own come first. */
struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site);

/* Takes out the oldest range that the profile keeps, if more than keep_bytes are kept so and it was freed before
 * before_ms; NULL if it may stay. */
struct large *big_cache_take_oldest(size_t keep_bytes, uint64_t before_ms);

/* Takes out a range that is kept by what was learned, if more than keep_bytes are: one that was freed before
 * before_ms, and, if only_due, whose time is over. NULL if there is none. */
struct large *big_cache_take_learned(bool only_due, size_t keep_bytes, uint64_t before_ms);

/* Takes out one of the oldest ranges that is an extent, of those that the profile keeps if there are such; NULL if there is
 * none among them. */
struct large *big_cache_take_old_extent(void);

/* Without the lock. oldest_ms: when the oldest range that the profile keeps was freed; due_ms: when the first of
 * the others is to go; 0 if there is none. */
size_t big_cache_bytes(void);
size_t big_cache_learned_bytes(void);
uint64_t big_cache_oldest_ms(void);
uint64_t big_cache_due_ms(void);

struct big_cache_counters {
  uint64_t puts, hits, hits_of_site, misses;
};
void big_cache_counters(struct big_cache_counters *out);

#ifdef HAK_DEBUG
bool big_cache_is_valid(void);
#endif

#endif
