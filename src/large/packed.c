#include "large/packed.h"

#include "base/list.h"
#include "budget/usage.h"
#include "large/granules.h"
#include "large/guarded.h"
#include "large/large.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/collapse.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "pages/page_map.h"

#include <string.h>

#define SHORT_BYTES ((size_t)1 << 20) /* what the last chunks below a limit hold at least */
#define LEFT_SHARE 8                  /* a chunk takes this part of what a limit leaves, but at least that */
#define RUN_LISTS 96u                 /* by length of the longest free run, in the classes of extents */
#define LOOKS_MAX 8u                  /* chunks of one list tried for a fit */

STACK_OF(list, chunk, next, previous)
STACK_OF(unpurged, chunk, next_unpurged, previous_unpurged)
#define RECORD_ORDER 13 /* of a chunk's record */
_Static_assert(sizeof(struct chunk) <= (size_t)1 << RECORD_ORDER, "a chunk's record is one piece of metadata");

static struct {
  struct lock lock;
  struct chunk *lists[RUN_LISTS]; /* [0]: full ones */
  struct chunk *unpurged;
  size_t count; /* chunks */
} packed;

bool packed_is_sealed;

static struct chunk **list_of(const struct chunk *chunk) { return &packed.lists[units_class(chunk->longest)]; }

static void set_purged(struct chunk *chunk, bool value) {
  if (value && !chunk->is_purged)
    unpurged_remove(&packed.unpurged, chunk);
  else if (!value && chunk->is_purged)
    unpurged_push(&packed.unpurged, chunk);
  chunk->is_purged = value;
}

/* All changes of a chunk's granules go through this function. */
static void set_taken(struct chunk *chunk, struct run run, bool value) {
  size_t longest = chunk->longest;
  bool shortens = value && free_run_around(chunk, run.first).count == longest;
  bits_set(chunk->used, run.first, run.count, value);
  starting_update(chunk, run);
  chunk->taken += (uint32_t)(value ? run.count : -run.count);
  set_purged(chunk, false);
  if (shortens)
    longest = longest_run(chunk);
  else if (!value)
    longest = max_size(longest, free_run_around(chunk, run.first).count);
  if (longest == chunk->longest)
    return;
  list_remove(list_of(chunk), chunk);
  chunk->longest = (uint32_t)longest;
  list_push(list_of(chunk), chunk);
}

static void set_end(struct chunk *chunk, size_t index, bool value) { bit_set(chunk->ends, index, value); }

static struct run aligned_part(const struct chunk *chunk, struct run run, size_t alignment) {
  uintptr_t at = (uintptr_t)chunk->base + run.first * GRANULE_BYTES;
  size_t skipped = (round_up(at, alignment) - at) / GRANULE_BYTES;
  return (struct run){.first = run.first + skipped, .count = sub_sat(run.count, skipped)};
}

/* Returns the first free run whose aligned part has so many granules; an empty run if there is none. */
static struct run aligned_run_for(const struct chunk *chunk, size_t granules, size_t alignment) {
  struct run run = free_run(chunk, 0);
  while (run.count > 0 && aligned_part(chunk, run, alignment).count < granules)
    run = free_run(chunk, run.first + run.count);
  return aligned_part(chunk, run, alignment);
}

/* Takes a block; NULL if no run is long enough. */
static void *take_from(struct chunk *chunk, size_t granules, size_t alignment) {
  struct run best =
      alignment <= GRANULE_BYTES ? free_run_for(chunk, granules) : aligned_run_for(chunk, granules, alignment);
  if (best.count < granules)
    return NULL;
  best.count = granules;
  set_end(chunk, best.first + granules - 1, true);
  set_taken(chunk, best, true);
  return chunk->base + best.first * GRANULE_BYTES;
}

static void *take_block(size_t granules, size_t alignment) {
  for (unsigned list = units_class(granules); list < RUN_LISTS; list++) {
    struct chunk *chunk = packed.lists[list];
    for (unsigned looks = 0; chunk != NULL && looks < LOOKS_MAX; looks++, chunk = chunk->next) {
      void *block = chunk->longest >= granules ? take_from(chunk, granules, alignment) : NULL;
      if (block != NULL)
        return block;
    }
  }
  return NULL;
}

/* --- chunks --- */

static _Atomic(struct chunk *) *chunk_word(const char *unit) {
  return (_Atomic(struct chunk *) *)(void *)map_bitmap(unit);
}

static struct chunk *chunk_of(const void *block) { return load_relaxed(chunk_word(block)); }

/* Returns how long a new chunk should be: the shorter, the less the limit leaves, but a few times the first block,
 * because the free rest of a chunk serves no larger block. */
static size_t chunk_length(size_t bytes) {
  size_t least = max_size(usage_left() / LEFT_SHARE, SHORT_BYTES);
  if (least >= CHUNK_BYTES)
    return CHUNK_BYTES;
  size_t blocks = max_size((least + bytes - 1) / bytes, 2);
  return min_size(round_up(blocks * bytes, UNIT_BYTES), CHUNK_BYTES);
}

/* Makes a chunk with room for a block. It is shorter than it should be only if the system refuses. */
static struct chunk *chunk_make(size_t bytes) {
  struct chunk *chunk = metadata_take(RECORD_ORDER);
  if (chunk == NULL)
    return NULL;
  size_t least = round_up(bytes, UNIT_BYTES), length = chunk_length(bytes);
  size_t dirty;
  char *base = large_alloc_extent(length, &dirty);
  while (base == NULL && length > least)
    base = large_alloc_extent(length = max_size(least, round_down(length / 2, UNIT_BYTES)), &dirty);
  if (base == NULL) {
    metadata_give(chunk, RECORD_ORDER);
    return NULL;
  }
  if (packed_is_sealed && dirty > 0)
    large_clear(base, min_size(dirty, length));
  *chunk = (struct chunk){.base = base, .granules = (uint32_t)(length / GRANULE_BYTES)};
  for (char *unit = base; unit < base + length; unit += UNIT_BYTES)
    store_relaxed(chunk_word(unit), chunk);
  map_entries_set(base, length / UNIT_BYTES, ENTRY_PACKED);
  chunk->longest = chunk->granules;
  chunk->starting[0] = (int16_t)chunk->granules;
  list_push(list_of(chunk), chunk);
  unpurged_push(&packed.unpurged, chunk);
  packed.count++;
  return chunk;
}

static void chunk_end(struct chunk *chunk) {
  list_remove(list_of(chunk), chunk);
  set_purged(chunk, true);
  packed.count--;
  map_entry_set(chunk->base, ENTRY_LARGE); /* large_free sets all */
  large_free(chunk->base);
  metadata_give(chunk, RECORD_ORDER);
}

/* --- seals --- */

/* A sealed block ends in a word behind the request (large/guarded.h), and in the number of bytes from the request's end
 * on. Requests are at least as long as the link of a deferred free, which must leave the word. */
#define SEAL_BYTES (sizeof(uint64_t) + sizeof(uint32_t))
#define SEALED_BYTES_MIN sizeof(void *)

/* The caller holds the lock of the block, or is the only one who knows it. */

/* Seals a block of `bytes`, of which the request has `size`: from SEALED_BYTES_MIN up to bytes - SEAL_BYTES. */
static void seal_set(char *block, size_t bytes, size_t size) {
  uint32_t slack = (uint32_t)(bytes - size);
  uint64_t word = guarded_word(block + size);
  memcpy(block + size, &word, sizeof word);
  memcpy(block + bytes - sizeof slack, &slack, sizeof slack);
}

/* Returns the size of the request; 0 if the seal is broken. */
static size_t seal_size(const char *block, size_t bytes) {
  uint32_t slack;
  uint64_t word;
  memcpy(&slack, block + bytes - sizeof slack, sizeof slack);
  if (slack < SEAL_BYTES || slack > bytes - SEALED_BYTES_MIN)
    return 0;
  memcpy(&word, block + bytes - slack, sizeof word);
  return word == guarded_word(block + bytes - slack) ? bytes - slack : 0;
}

/* Ends the program if free bytes, of whole granules, were written after the free of `block`. */
static void check_is_zero(const char *block, const char *start, size_t bytes) {
  uint64_t any = 0, word;
  for (size_t i = 0; i < bytes; i += sizeof word) {
    memcpy(&word, start + i, sizeof word);
    any |= word;
  }
  if (any != 0)
    fault_written_after_free(block);
}

/* Moves the seal of a block of `bytes` that gets `wanted` of them. What lies behind the shorter size is zero then. A
 * broken seal, or a change of the bytes that come to the block, ends the program. */
static void seal_move(char *block, size_t bytes, size_t wanted, size_t size) {
  size_t before = seal_size(block, bytes);
  if (before == 0)
    fault_written_beyond(block);
  if (wanted > bytes)
    check_is_zero(block, block + bytes, wanted - bytes);
  before = min_size(before, size);
  memset(block + before, 0, bytes - before);
  seal_set(block, wanted, max_size(size, SEALED_BYTES_MIN));
}

/* --- blocks --- */

void packed_seal_begin(void) {
  guarded_words_begin();
  HOLD_LOCK(&packed.lock);
  packed_is_sealed = packed.count == 0;
}

static size_t granules_for(size_t size) {
  size_t bytes = packed_is_sealed ? max_size(size, SEALED_BYTES_MIN) + SEAL_BYTES : size;
  return (bytes + GRANULE_BYTES - 1) / GRANULE_BYTES;
}

void *packed_take(size_t size, size_t alignment) {
  size_t granules = granules_for(size);
  lock_take(&packed.lock);
  void *block = take_block(granules, alignment);
  if (block == NULL) {
    struct chunk *chunk = chunk_make(granules * GRANULE_BYTES + (alignment > UNIT_BYTES ? alignment : 0));
    block = chunk ? take_from(chunk, granules, alignment) : NULL;
  }
  lock_give(&packed.lock);
  if (packed_is_sealed && block != NULL) {
    check_is_zero(block, block, granules * GRANULE_BYTES);
    seal_set(block, granules * GRANULE_BYTES, max_size(size, SEALED_BYTES_MIN));
  }
  return block;
}

static size_t index_of(const struct chunk *chunk, const void *block) {
  return (size_t)((const char *)block - chunk->base) / GRANULE_BYTES;
}

static struct run run_at(const struct chunk *chunk, size_t first) {
  return (struct run){.first = first, .count = bit_find(chunk->ends, first, chunk->granules, true) + 1 - first};
}

/* Returns the block's granules. The lock is held. */
static struct run run_of(const struct chunk *chunk, const void *block) {
  size_t first = index_of(chunk, block);
  if (!bit_is_set(chunk->used, first))
    fault_double_free(block);
  bool follows_end = first == 0 || !bit_is_set(chunk->used, first - 1) || bit_is_set(chunk->ends, first - 1);
  if ((uintptr_t)block % GRANULE_BYTES != 0 || !follows_end)
    fault_not_a_block(block);
  return run_at(chunk, first);
}

static void give_run(struct chunk *chunk, struct run run) {
  set_end(chunk, run.first + run.count - 1, false);
  set_taken(chunk, run, false);
  if (chunk->taken == 0)
    chunk_end(chunk);
}

void packed_give(void *block) {
  lock_take(&packed.lock);
  if (map_entry(block) != ENTRY_PACKED) /* a double free: another thread freed the block, and the chunk ended */
    fault_double_free(block);
  struct chunk *chunk = chunk_of(block);
  struct run run = run_of(chunk, block);
  if (packed_is_sealed) {
    if (seal_size(block, run.count * GRANULE_BYTES) == 0)
      fault_written_beyond(block);
    memset(block, 0, run.count * GRANULE_BYTES);
  }
  give_run(chunk, run);
  lock_give(&packed.lock);
  usage_freed_add(run.count * GRANULE_BYTES);
}

bool packed_resize(void *block, size_t size) {
  size_t wanted = granules_for(size);
  HOLD_LOCK(&packed.lock);
  struct chunk *chunk = chunk_of(block);
  struct run run = run_of(chunk, block);
  size_t end = run.first + run.count;
  struct run behind = {.first = end, .count = sub_sat(wanted, run.count)};
  bool fits = end + behind.count <= chunk->granules &&
              bit_find(chunk->used, end, end + behind.count, true) == end + behind.count;
  if (fits && packed_is_sealed)
    seal_move(block, run.count * GRANULE_BYTES, wanted * GRANULE_BYTES, size);
  if (fits && wanted != run.count) {
    set_end(chunk, end - 1, false);
    set_end(chunk, run.first + wanted - 1, true);
    if (wanted > run.count)
      set_taken(chunk, behind, true);
    else
      set_taken(chunk, (struct run){.first = run.first + wanted, .count = run.count - wanted}, false);
  }
  return fits;
}

size_t packed_bytes(const void *block) {
  const struct chunk *chunk = chunk_of(block);
  size_t bytes = run_at(chunk, index_of(chunk, block)).count * GRANULE_BYTES;
  return packed_is_sealed ? seal_size(block, bytes) : bytes;
}

/* --- giving pages back --- */

static struct run whole_pages(const struct chunk *chunk, struct run run) {
  struct run pages = aligned_part(chunk, run, os_page_bytes());
  pages.count = round_down(pages.count * GRANULE_BYTES, os_page_bytes()) / GRANULE_BYTES;
  return pages;
}

/* Purges a chunk. The lock is held, but not over the system calls; the pages count as taken meanwhile. Other blocks
 * keep the chunk alive. What other threads free meanwhile may lie in front of these pages: the next purge takes it. */
static size_t chunk_purge(struct chunk *chunk) {
  size_t given_back = 0;
  bool is_changed = false;
  for (struct run run = free_run(chunk, 0); run.count > 0; run = free_run(chunk, run.first + run.count)) {
    struct run pages = whole_pages(chunk, run);
    if (pages.count == 0)
      continue;
    set_end(chunk, pages.first + pages.count - 1, true);
    set_taken(chunk, pages, true);
    set_purged(chunk, true);
    lock_give(&packed.lock);
    collapse_forget(chunk->base + pages.first * GRANULE_BYTES, pages.count * GRANULE_BYTES);
    bool is_gone = pages_purge(chunk->base + pages.first * GRANULE_BYTES, pages.count * GRANULE_BYTES) != PURGE_REFUSED;
    given_back += is_gone ? pages.count * GRANULE_BYTES : 0;
    lock_take(&packed.lock);
    is_changed |= !chunk->is_purged;
    bool ends = chunk->taken == pages.count; /* all other blocks were freed meanwhile */
    give_run(chunk, pages);
    if (ends)
      return given_back;
    run = pages;
  }
  set_purged(chunk, !is_changed);
  return given_back;
}

size_t packed_purge(void) {
  size_t given_back = 0, left = SIZE_MAX;
  while (left > 0) {
    HOLD_LOCK(&packed.lock); /* for one chunk at a time, because malloc and free wait for it */
    left = packed.unpurged ? min_size(left, packed.count) - 1 : 0;
    given_back += packed.unpurged ? chunk_purge(packed.unpurged) : 0;
  }
  return given_back;
}

#ifdef HAK_DEBUG
static bool chunk_is_valid(const struct chunk *chunk, unsigned list) {
  bool valid = units_class(chunk->longest) == list && chunk->longest == longest_run(chunk) && chunk->taken > 0;
  size_t taken = 0;
  for (size_t i = 0; i < CHUNK_WORDS; i++) {
    taken += (size_t)__builtin_popcountll(word_read(chunk->used, i));
    valid &= (word_read(chunk->ends, i) & ~word_read(chunk->used, i)) == 0;
    valid &= (size_t)chunk->starting[i] == free_run_starting(chunk, i, SIZE_MAX).count;
  }
  return valid && taken == chunk->taken;
}

bool packed_is_valid(void) {
  bool valid = true;
  HOLD_LOCK(&packed.lock);
  for (unsigned list = 0; list < RUN_LISTS; list++)
    for (const struct chunk *chunk = packed.lists[list]; chunk; chunk = chunk->next)
      valid &= chunk_is_valid(chunk, list);
  return valid;
}
#endif
