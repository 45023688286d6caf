/* big_cache.h: the BigCache: freed ranges of large objects, ready for the next request.
 *
 * It is for call sites that ask for one size class again and again. A cached range serves only its class; a free extent
 * can be cut and joined, which serves call sites with changing sizes better. The key is size class and call site: a
 * chained hash table of 256 to 65,536 buckets, with any number of ranges per key. If a site's own ranges are used up,
 * another site's ranges serve. The caller bounds the cache in bytes and in age. Only the table takes memory; a range's
 * record describes it.
 *   B1  a cached range is in the chain of its key, in the list of its class, and in one of the lists by age
 *   B2  big_cache_decay has the sum of their sizes, count is their number; usage_free counts the bytes
 * big_cache_is_valid checks both. All functions take the cache's lock.
 */
#ifndef HAK_LARGE_BIG_CACHE_H
#define HAK_LARGE_BIG_CACHE_H

#include "budget/decay.h"

/* The record of a large range, at its first unit. The owner of the object may access it; while the range is cached,
 * only the cache. */
struct large {
  char *base;     /* const while the range lives */
  uint32_t units; /* its length */
  uint32_t site;  /* hash of the call site */
  union {
    uint32_t freed_ms; /* low bits of the time */
    uint32_t owner;    /* while the object lives: whose list it is in, 0: in none (large/large.h) */
  };
  uint8_t class;                   /* of its length */
  uint8_t keep;                    /* while cached: the list by age it is in */
  bool mapping : 1;                /* a mapping of its own, else an extent */
  bool huge : 1;                   /* huge pages were asked for */
  bool spare : 1;                  /* taken without a lock; not counted by call site, not sampled */
  bool guarded : 1;                /* between pages without access (large/guarded.h) */
  bool steady : 1;                 /* its site asked for this class several times in a row */
  bool noted : 1;                  /* huge_note_mapping saw it since it was made, grew or was purged */
  uint32_t key_next, key_previous; /* unit numbers of the ranges in its chain, or of the objects in its list, 0: none */
  union {
    struct large *class_next; /* while cached */
    uint64_t caller;          /* while the object lives: its call site in the form of adapt/policy_engine.h */
  };
  struct large *class_previous;
  union {
    struct large *newer; /* while cached */
    size_t guarded_size; /* of a guarded object */
  };
  union {
    struct large *older;
    size_t guard_front; /* of a guarded object: bytes without access in front of it */
  };
};

static inline size_t large_range_bytes(const struct large *range) { return range->units * UNIT_BYTES; }

/* Classes of length (pages/extent.h). The last one includes all longer ones. */
#define LARGE_CLASSES 208u
unsigned large_class_of(size_t units);

/* Returns the hash of a call site, as a range stores it. */
uint32_t site_hash(uintptr_t site);

/* Notes that a site asks for a class. Returns true if it did so several times in a row. Takes no lock: a lost note
 * costs at most one hit. */
bool site_is_steady(uint32_t site, unsigned class);

/* Puts the range of a live object into the cache. keep: the strategy that decides how long it stays
 * (policy/keep_policy.h). False if there is no memory for the table. */
bool big_cache_put(struct large *range, unsigned keep);

/* The following functions take ranges out, and the caller must call usage_move_end (budget/usage.h). The bytes are in
 * USAGE_PROMISED then, and the caller must move them on, if nothing else is said. For big_cache_put the caller calls
 * usage_move_begin. */

/* Takes a range of at least `bytes`, at most about an eighth longer, at a multiple of `alignment`, for a new object:
 * its bytes are in USAGE_LARGE. The site's own ranges come first. NULL if there is none. */
struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site);

/* Takes the oldest range that goes. NULL if all may stay. */
struct large *big_cache_take_oldest(struct purge purge);

/* Takes one of the oldest ranges that is an extent, or may become one: a mapping as short as extents are. Those that
 * the preset decides about come first. NULL if there is none. */
struct large *big_cache_take_old(void);

extern struct decay big_cache_decay;

#ifdef HAK_DEBUG
bool big_cache_is_valid(void);
#endif

#endif
