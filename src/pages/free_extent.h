/* free_extent.h: the free extents (pages/extent.h): those of a bank by size, the resident ones by age, and all by their
 * ends. Only this folder includes it. All functions are called with the extents' lock held, and make no system call.
 *   E1  the entries of a free extent's first and last unit are ENTRY_EXTENT, no other entry is; the first
 *       unit's record describes it, the last one's points to its base
 *   E2  no two free extents of one kind (bank, resident, zero) touch
 *   E3  a free extent is in the list of its size, and if it is resident in the list by age of its strategy
 *   E4  usage_free counts the resident ones
 * free_extents_are_valid checks E1 at the ends, E2 and E3; check builds check E4 at each fork (api/start.c).
 */
#pragma once

#include "os/nodes.h"
#include "os/os.h"
#include "pages/extent.h"

struct free_links {
  struct free_extent *next, *previous;
};
struct free_extent {
  char *base; /* stored in the last unit's record too */
  size_t bytes;
  struct free_links by_size, by_age;
  uint64_t freed_ms;
  bool resident, zero;
  uint8_t keep; /* its list by age, if it is resident */
  uint8_t bank; /* its number */
};

struct bank {
  uint64_t filled[2][UNITS_CLASSES / 64]; /* bit i: list i is not empty */
  struct arena arena;                     /* the newest one */
};

/* A bank is known by its number. They are numbered node by node. An arena's mark is its bank's number plus one. */
static inline unsigned bank_number(enum extent_bank bank, unsigned node) { return EXTENT_BANKS * node + bank; }
static inline unsigned bank_mark(unsigned number) { return number + 1; }
static inline unsigned bank_count(void) { return EXTENT_BANKS * os_nodes(); }
struct bank *bank_numbered(unsigned number);
/* Returns a bank's lists by size, one of each class of units. */
struct free_extent **bank_lists(unsigned number, bool resident);
/* Returns the first bank's number for an address outside all arenas. */
unsigned bank_number_at(const void *address);

/* How long a free extent's pages stay, and since when. */
struct stay {
  uint64_t freed_ms;
  unsigned keep;
  bool is_fixed; /* keep holds whatever the neighbours have */
};
#define NO_STAY ((struct stay){.keep = KEEP_BY_PRESET}) /* of one without pages */
/* Of one that was purged. If the system refused, a neighbour's strategy might have it tried again at once. */
#define STAY_PURGED ((struct stay){.freed_ms = os_milliseconds(), .keep = KEEP_BY_PRESET, .is_fixed = true})

/* Makes a free extent, joined with its free neighbours. One that is not resident is counted nowhere. */
void free_extent_give(struct extent piece, struct stay stay, enum usage from);

/* Returns the free extent that begins at an address; NULL if there is none. */
struct free_extent *free_extent_at(char *base);
/* Returns one that fits, of about the shortest; NULL if none was found. */
struct free_extent *free_extent_find(unsigned number, bool resident, size_t bytes, size_t alignment);
/* Returns the oldest one of a strategy; NULL: there is none. */
struct free_extent *free_extent_oldest(unsigned keep);

/* Takes a free extent, or [base, base + bytes) of it; then the rest on both sides stays free, at the same place by age:
 * what a purge in parts leaves of the oldest is the oldest. The bytes of a resident one still count as free. The
 * entries between the ends stay as the last owner left them. */
struct extent free_extent_take(struct free_extent *e);
struct extent free_extent_cut(struct free_extent *e, char *base, size_t bytes);

size_t free_extents_bytes(void);
#ifdef HAK_DEBUG
bool free_extents_are_valid(void);
#endif
