/* extent_bank.h: the banks of pages/extent.h: free extents in lists by length and by age, and the arenas that extents
 * come from. For extent.c only, which takes extents_lock before it calls anything here.
 *
 * A bank is known by its number: banks are numbered node by node, and an arena's mark is its bank's number plus one.
 */
#pragma once

#include "os/lock.h"
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
  uint8_t bank; /* its number */
};

extern struct lock extents_lock;

static inline unsigned bank_number(enum extent_bank bank, unsigned node) { return EXTENT_BANKS * node + bank; }
static inline unsigned bank_mark(unsigned number) { return number + 1; }
/* Returns the first bank's number for an address outside all arenas. */
unsigned bank_number_at(const void *address);
unsigned bank_count(void);
struct arena *bank_arena(unsigned number);

/* Returns the bytes of all free extents; the resident one that was freed first, NULL if there is none. */
size_t bank_free_bytes(void);
struct free_extent *bank_oldest(void);

/* Makes a free extent, joined with its free neighbours. One that is not resident is counted nowhere. */
void bank_give(struct extent piece, uint64_t freed_ms, enum usage from);

/* Returns a free extent that fits, of about the shortest; NULL if none was found. */
struct free_extent *bank_find(unsigned number, bool resident, size_t bytes, size_t alignment);
/* Returns the free extent that begins at an address; NULL if there is none. */
struct free_extent *bank_free_at(char *base);
/* Takes [base, base + bytes) out of a free extent. The rest on both sides stays free. The bytes of a resident one still
 * count as free. */
struct extent bank_cut(struct free_extent *e, char *base, size_t bytes);
/* The same of one that bank_find returns. Its base is NULL if there is none. */
struct extent bank_take_free(unsigned number, bool resident, size_t bytes, size_t alignment);

/* Carves an extent from the front of the newest arena, or of a new one. Its base is NULL if the system refuses. */
struct extent bank_carve(unsigned number, size_t bytes, size_t alignment);
/* Retires the newest arena: its accessible rest becomes a free extent, the inaccessible rest is unmapped. */
void bank_retire(unsigned number);

/* Adds a mapping to a bank as an arena, in use; takes an extent that was cut out of its arena. */
void bank_add(unsigned number, char *base, size_t bytes);
void bank_remove(unsigned number, struct extent extent);
/* Returns in how many connected pieces adopted arenas are. */
size_t bank_islands(void);
