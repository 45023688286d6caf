/* extent.h: the address space that slabs and large objects are made of.
 *
 * An extent is a run of units of an arena (pages/arena.h). Free neighbours of one kind are joined to one extent, and
 * listed (pages/free_extent.h). Arenas come in banks, because the kernel's huge-page flag is best set for whole arenas:
 * each flagged piece would be a mapping of its own. The adopted bank's arenas were mappings of large objects. Their
 * free extents are unmapped by age, because more such mappings will come; only short ones between others are purged.
 * Each node (os/nodes.h) has banks of its own: the threads that run there touch their pages first. The lock is held
 * over system calls only where an arena is reserved, made accessible or ended.
 */
#pragma once

#include "budget/decay.h"
#include "budget/usage.h"
#include "pages/arena.h"

enum extent_bank { EXTENT_PLAIN, EXTENT_HUGE, EXTENT_ADOPTED, EXTENT_BANKS };

/* Returns the class of a length: one class for each length up to 8 units, then 8 per doubling, rounded down. The last
 * one has all longer ones, too. */
#define UNITS_CLASSES 192u
static inline unsigned units_class(size_t units) {
  if (units < 8)
    return (unsigned)units;
  unsigned octave = 63u - (unsigned)__builtin_clzl(units);
  unsigned class = 8 * (octave - 2) + ((unsigned)(units >> (octave - 3)) & 7);
  return class < UNITS_CLASSES ? class : UNITS_CLASSES - 1;
}

struct extent {
  char *base; /* NULL: none */
  size_t bytes;
  bool resident; /* used since it was purged, if ever */
  bool zero;     /* reads as zero, from its front on */
  size_t front;  /* bytes at its begin that were resident when it was taken, though it counts as one that is not */
};

/* Takes `bytes` (whole units) at a multiple of `alignment` (a power of two, UNIT_BYTES to ROW_BYTES) of the plain or
 * the huge bank, of the node that the thread runs on; where these are out, of other nodes, then of the other bank.
 * Resident memory comes first, then what begins with resident memory: such an extent has a front, and is not counted
 * in USAGE_FREE any more. The bytes of a resident extent are in USAGE_FREE still, those of another one in
 * USAGE_PROMISED: the caller must move them on, and call usage_move_end (budget/usage.h). It sets the entries of all
 * units. No base: the limit does not allow it, or address space is out. */
struct extent extent_take(enum extent_bank bank, size_t bytes, size_t alignment);

/* As extent_take, but only resident memory; if this bank has none that fits, the other banks' of the node, then that of
 * other nodes. */
struct extent extent_take_resident(enum extent_bank bank, size_t bytes, size_t alignment);

/* The same; if there is none, what caches above this layer keep becomes free extents until one fits. The caches set it
 * when they begin to keep extents; NULL: they never did. Call without a lock of this folder. */
typedef struct extent extent_taker(enum extent_bank bank, size_t bytes, size_t alignment);
extern extent_taker *_Atomic extent_take_kept;

/* As extent_take for the `bytes` right behind `end`, if they are free. */
struct extent extent_take_behind(char *end, size_t bytes);

/* Takes back an extent, or any part of one. keep: the strategy that decides how long its pages stay
 * (policy/keep_policy.h); freed_ms: when it was last used; from: where its bytes are counted. The caller has called
 * usage_move_begin; this function calls usage_move_end. */
void extent_give(struct extent extent, unsigned keep, uint64_t freed_ms, enum usage from);
/* The same, and gives its pages back to the system first. Returns its bytes; 0 if the system refuses: then it counts as
 * used just now, so that it is not tried again at once. */
size_t extent_give_purged(struct extent extent, enum usage from);

/* Makes an arena of a mapping, of the node that the thread runs on. Its owner goes on to own it, as if extent_take had
 * returned it. It consists of whole units, and the page map covers it. False: such arenas are in too many pieces. */
bool extent_adopt(char *mapping, size_t bytes);
/* Tells whether an eighth of the pieces that may be is reached. */
bool extent_pieces_are_many(void);

/* Gives resident free extents back to the system, oldest first. What the system refuses (locked pages) does not keep
 * the others from going; many such extents count against most_bytes. One thread at a time (reclaim/reclaim.h). Holds no
 * lock over the system calls. Returns the bytes given back. */
size_t extents_purge(struct purge purge);

/* Unmaps free extents of at least bytes_min, and the unused ends of the arenas. Call when address space is out. True if
 * anything was unmapped. */
bool extents_release(size_t bytes_min);

enum extent_bank extent_bank_of(const void *address);
unsigned extent_node_of(const void *address);

struct extent_stats {
  size_t reserved_bytes;      /* address space of all arenas */
  size_t committed_bytes;     /* of it made accessible */
  size_t resident_free_bytes; /* free extents that were used and not purged since */
  size_t other_free_bytes;    /* the other free extents */
  size_t unused_bytes;        /* of committed_bytes, where nothing was carved yet */
};
void extents_stats(struct extent_stats *out);

#ifdef HAK_DEBUG
bool extents_are_valid(void);
#endif
