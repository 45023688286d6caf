/* big_cache.h: the BigCache: freed ranges of large objects, ready for the next request.
 *
 * It is for call sites that ask for one size class again and again, and for what was long in a stash. A cached range
 * serves only its class; a free extent can be cut and joined, which serves call sites with changing sizes better. The
 * range of a class that was freed last comes first, whichever site freed it. The caller bounds the cache in bytes and
 * in age. The cache takes no memory; a range's record describes it.
 *   B1  a cached range is in the list of its class, and in one of the lists by age
 *   B2  big_cache_decay has the sum of their sizes, count is their number; usage_free counts the bytes
 * big_cache_is_valid checks both. All functions take the cache's lock.
 */
#pragma once

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
  uint8_t class;                     /* while cached: of its length */
  uint8_t color : 6;                 /* cache lines between the begins of the range and of its (last) object */
  bool mapping : 1;                  /* a mapping of its own, else an extent */
  bool huge : 1;                     /* huge pages were asked for */
  uint8_t keep : 3;                  /* while cached: the list by age it is in */
  bool spare : 1;                    /* taken without a lock; not counted by call site, not sampled */
  bool guarded : 1;                  /* between pages without access (large/guarded.h) */
  bool steady : 1;                   /* its site asked for this class several times in a row */
  bool noted : 1;                    /* huge_note_mapping saw it since it was made, grew or was purged */
  bool stays_mapping : 1;            /* no extent can serve its like, which would leave one more each time */
  _Atomic bool ended;                /* set by the one free of the object, which may be in a stash (large/stash.h) */
  uint32_t list_next, list_previous; /* while the object lives: unit numbers of the objects in its list, 0: none */
  union {
    struct large *class_next; /* while cached */
    uint64_t caller;          /* while the object lives: its call site in the form of adapt/policy_engine.h */
  };
  struct large *class_previous; /* while the object lives: large_link's */
  union {
    struct large *newer; /* while cached */
    size_t guarded_size; /* of a guarded object */
  };
  union {
    struct large *older;
    size_t guard_front; /* of a guarded object: bytes without access in front of it */
  };
};

_Static_assert(KEEP_LISTS <= 1 << 3, "a list by age fits the record");

static inline size_t large_range_bytes(const struct large *range) { return range->units * UNIT_BYTES; }

/* Returns the bytes of a range for a request. 32 lengths a doubling: an object that grows has some room, and little is
 * lost. */
static inline size_t large_length(size_t size) {
  size_t units = (size + UNIT_BYTES - 1) / UNIT_BYTES;
  if (units <= SUPERSLAB_UNITS || size >= MAPPING_BYTES_MIN)
    return units * UNIT_BYTES;
  return round_up(units, (size_t)1 << (63 - __builtin_clzl(units - 1) - 5)) * UNIT_BYTES;
}

/* A freed range may wait in its thread's stash if its site asks for one length again and again, or if it is so short
 * that it has one of few lengths. */
#define LARGE_SHORT_UNITS 4u
static inline bool large_is_stashable(const struct large *range) {
  return range->steady || range->units <= LARGE_SHORT_UNITS;
}

/* Ranges begin at multiples of 64 KiB. What a program does at equal offsets of many objects would meet in a few sets of
 * each cache. So the objects of a steady site begin at one of 64 cache lines of their first page, if the range has room
 * for that anyway, or gets it for 1/64 of its length, 1/32 where that takes no memory. The line depends on the address
 * only, so that a range that is used again is used in the same lines. */
#define LARGE_COLORS 64u
#define LARGE_COLOR_ROOM ((LARGE_COLORS - 1) * (size_t)CACHE_LINE)
#define LARGE_COLOR_SHARE 64u
#define LARGE_COLOR_SHARE_MAX 32u
static inline bool large_has_room(size_t length, size_t size) { return length - size >= LARGE_COLOR_ROOM; }
/* Returns the longest range for a request of a steady site. One that gets its room for more than a 64th of its length
 * may also have a unit less (large_may_be_bare), as on huge pages, where all of that unit would be resident. */
static inline size_t large_length_steady(size_t size, size_t alignment) {
  size_t length = large_length(size);
  bool is_longer =
      alignment <= LARGE_COLOR_ROOM && !large_has_room(length, size) && length >= LARGE_COLOR_SHARE_MAX * UNIT_BYTES;
  return length + (is_longer ? UNIT_BYTES : 0);
}
static inline bool large_may_be_bare(size_t length, size_t size) {
  return length > LARGE_COLOR_SHARE_MAX * UNIT_BYTES && length <= LARGE_COLOR_SHARE * UNIT_BYTES &&
         !large_has_room(length - UNIT_BYTES, size);
}
static inline uint8_t large_color_of(const char *base, size_t alignment) {
  uint64_t color = ((uintptr_t)base >> HAK_UNIT_SHIFT) * MIX_STEP >> 58;
  return color & -(max_size(alignment, CACHE_LINE) / CACHE_LINE) & (LARGE_COLORS - 1);
}
static inline size_t large_offset(const struct large *range) { return range->color * (size_t)CACHE_LINE; }
static inline char *large_object(const struct large *range) { return range->base + large_offset(range); }

/* Classes of length (pages/extent.h). The last one includes all longer ones. */
#define LARGE_CLASSES 208u
unsigned large_class_of(size_t units);

/* Returns the hash of a call site, as a range stores it: the upper half of the product depends on all bits of the
 * address (Fibonacci hashing). */
static inline uint32_t site_hash(uintptr_t site) { return (uint32_t)(site * MIX_STEP >> 32); }

/* Notes that a site asks for a class. Returns true if it did so several times in a row. Takes no lock: a lost note
 * costs at most one hit. */
#define SITE_NOTES 1024u /* call sites whose hashes collide share a note */
#define SITE_REPEATS_MAX 0xffu
extern _Atomic uint16_t site_notes[SITE_NOTES]; /* class << 8 | repeats, by site */
bool site_is_steady_again(uint32_t site, unsigned class);
static inline uint16_t site_note_steady(unsigned class) { return (uint16_t)(class << 8 | SITE_REPEATS_MAX); }
static inline bool site_is_steady(uint32_t site, unsigned class) {
  bool is_habit = load_relaxed(&site_notes[site % SITE_NOTES]) == site_note_steady(class);
  return LIKELY(is_habit) || site_is_steady_again(site, class);
}

/* Puts the range of an object that was freed at freed_ms into the cache. keep: the strategy that decides how long it
 * stays (policy/keep_policy.h). */
void big_cache_put(struct large *range, unsigned keep, uint64_t freed_ms);

/* Takes a range of at least `bytes`, at most about an eighth longer, at a multiple of `alignment`, for a new object:
 * its bytes are in USAGE_LARGE. site: only counted. NULL if there is none. */
struct large *big_cache_take(size_t bytes, size_t alignment, uint32_t site);

/* The following functions take ranges out to end them. The bytes are in USAGE_PROMISED: the caller must move them on,
 * and call usage_move_end (budget/usage.h). */

/* Takes the oldest range that goes. NULL if all may stay. */
struct large *big_cache_take_oldest(struct purge purge);

/* Takes one of the oldest ranges that is an extent. Those that the preset decides about come first. NULL if there is
 * none. */
struct large *big_cache_take_old(void);

extern struct decay big_cache_decay;

#ifdef HAK_DEBUG
bool big_cache_is_valid(void);
#endif
