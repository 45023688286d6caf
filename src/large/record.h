/* record.h: what is known of a range of a large object, how long ranges are, and where the object begins in one. */
#pragma once

#include "policy/keep_policy.h"

/* The record of a large range, at its first unit. The owner of the object may access it; while the range is cached,
 * only the cache. */
struct large {
  char *base;     /* const while the range lives */
  uint32_t units; /* its length */
  uint32_t site;  /* hash of the call site */
  uint32_t owner; /* while the object lives: the private pool whose list it is in; 0: in none (threads/private.h) */
  union {
    uint8_t class;       /* while cached: of its length */
    uint8_t guard_order; /* of a guarded object: 2^order bytes without access lie in front of it, none if it is 0 */
  };
  uint8_t color : 6;      /* cache lines between the begins of the range and of its (last) object */
  bool mapping : 1;       /* a mapping of its own, else an extent */
  bool huge : 1;          /* a mapping for which huge pages were asked */
  uint8_t keep : 3;       /* while cached: the list by age it is in */
  bool spare : 1;         /* taken without a lock; not counted by call site, not sampled */
  bool guarded : 1;       /* between pages without access (large/guarded.h) */
  bool steady : 1;        /* its site asked for this class several times in a row */
  bool noted : 1;         /* huge_note_mapping saw it since it was made, grew or was purged */
  bool stays_mapping : 1; /* never becomes an extent: its site needs mappings, so each time an extent would be left */
  _Atomic bool ended;     /* set by the one free of the object, which may be in a stash (large/stash.h) */
  union {
    uint64_t freed_ms;       /* while cached */
    struct large *list_next; /* while the object lives: in that list */
  };
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
    struct large *list_previous;
  };
};

_Static_assert(KEEP_LISTS <= 1 << 3, "a list by age fits the record");

static inline size_t large_range_bytes(const struct large *range) { return range->units * UNIT_BYTES; }

/* Returns the bytes of a range for a request. 32 lengths a doubling: an object that grows has some room, and little is
 * lost. */
static inline size_t large_length(size_t size) {
  size_t units = (size + UNIT_BYTES - 1) / UNIT_BYTES;
  if (units <= ROW_UNITS || size >= MAPPING_BYTES_MIN)
    return units * UNIT_BYTES;
  return round_up(units, (size_t)1 << (63 - __builtin_clzl(units - 1) - 5)) * UNIT_BYTES;
}

#define LARGE_SHORT_UNITS 4u /* objects of up to so many units are packed sooner, and cut up less */

/* A freed range may wait in its thread's stash if its site asks for one length again and again, or if it has one of
 * those lengths that are not rounded. */
static inline bool large_is_stashable(const struct large *range) { return range->steady || range->units <= ROW_UNITS; }

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
