#include "slab/record.h"

#include "base/observers.h"
#include "budget/usage.h"
#include "os/fault.h"
#include "os/os.h"
#include "pages/metadata.h"
#include "pages/page_map.h"
#include "pages/run.h"

#include <string.h>

/* An empty slab up to this length stays open if its class has no other free block. Otherwise a program whose demand
 * varies around a slab's end would open and close a slab all the time. */
#define KEPT_EMPTY_BYTES_MAX ((size_t)256 * 1024)

/* A class with this many slabs takes the pages of a fresh one at once. So at most this fraction of its bytes is
 * resident and unused. Only blocks up to a page: a program that writes to each block writes to each page. */
#define POPULATE_SHARE 16u
#define POPULATE_BYTES_MAX ((size_t)256 * 1024)

#define FREED_STEP ((size_t)64 * 1024) /* freed bytes are reported to usage_freed_add in steps */

static unsigned list_of(const struct slab *slab) {
  if (slab->free_count == 0)
    return FULLNESS_FULL;
  return (slab->free_count - 1) * FULLNESS_LISTS / size_classes[slab->class].block_count;
}

/* Moves the slab to the list for its free_count. */
static void slab_list_update(struct slab_set *set, struct slab *slab) {
  unsigned list = list_of(slab), blocks = size_classes[slab->class].block_count;
  size_t until = ((list + 1) * blocks + FULLNESS_LISTS - 1) / FULLNESS_LISTS;
  slab->list_until = list == FULLNESS_FULL ? 0 : (uint32_t)min_size(until, blocks - 1); /* each empty one is due */
  if (list == slab->list)
    return;
  slab_list_leave(set, slab);
  if (slab_has_list(set, list))
    slab_list_push(&set->classes[slab->class].lists[list], slab);
  slab->list = (uint8_t)list;
}

static struct slab *first_partial(const struct slab_set *set, unsigned cls) {
  struct slab *const *lists = set->classes[cls].lists;
  for (unsigned list = 0; list < FULLNESS_LISTS; list++)
    if (lists[list])
      return lists[list];
  return NULL;
}

bool slab_set_has_free(const struct slab_set *set, unsigned cls) { return first_partial(set, cls) != NULL; }

/* One more for the end, if that is too short for a block. */
static unsigned states_order(unsigned cls) {
  return metadata_order((class_slab_bytes(cls) + class_bytes(cls) - 1) / class_bytes(cls) * sizeof(uint16_t));
}

/* Makes the array of states for a slab of a set that has them; all are 0. False: out of memory. */
COLD static bool states_open(const char *base, unsigned cls) {
  unsigned order = states_order(cls);
  _Atomic uint16_t *states = metadata_take(order);
  if (states != NULL)
    memset((void *)states, 0, (size_t)1 << order);
  atomic_store_explicit(map_row_states(map_row(base), base), states, memory_order_release);
  return states != NULL;
}

COLD static void states_close(const char *base, unsigned cls) {
  metadata_give((void *)atomic_exchange(map_row_states(map_row(base), base), NULL), states_order(cls));
}

static NOINLINE struct slab *slab_open(struct slab_set *set, unsigned cls) {
  const struct size_class *class = &size_classes[cls];
  bool is_growing = set->classes[cls].slab_count >= POPULATE_SHARE && class->bytes <= os_page_bytes() &&
                    class_slab_bytes(cls) <= POPULATE_BYTES_MAX;
  char *base = slab_set_allows(set, class_slab_bytes(cls)) ? run_take(class->order, is_growing) : NULL;
  if (base == NULL)
    return NULL;
  if (UNLIKELY(set->has_states) && !states_open(base, cls)) {
    run_give(base, class->order, KEEP_BY_PRESET);
    return NULL;
  }
  if (advice_is_wanted())
    observers.slab_opened(class->bytes, class_slab_bytes(cls));
  struct slab *slab = map_record(base);
  slab->base = base;
  slab->bitmap = map_bitmap(base);
  slab->free_count = class->block_count;
  slab->hint = 0;
  slab->class = (uint8_t)cls;
  slab->list = NO_LIST;
  slab->rest = REST_NONE;
  unsigned whole_words = class->block_count / 64;
  for (unsigned i = 0; i < whole_words; i++)
    *bitmap_word(slab->bitmap, i) = ~(uint64_t)0;
  if (class->block_count % 64)
    *bitmap_word(slab->bitmap, whole_words) = ((uint64_t)1 << class->block_count % 64) - 1;
  map_entries_set(base, (size_t)1 << class->order, entry_of(set->key, cls));
  set->slab_bytes += class_slab_bytes(cls);
  bit_set(set->many, cls, ++set->classes[cls].slab_count >= SLABS_MANY);
  set->counters.slabs_opened++;
  set->has_news = true;
  usage_move_end(class_slab_bytes(cls));
  slab_list_update(set, slab);
  return slab;
}

static void slab_close(struct slab_set *set, struct slab *slab) {
  unsigned order = size_classes[slab->class].order;
  slab_list_leave(set, slab);
  map_entries_set(slab->base, (size_t)1 << order, ENTRY_NONE);
  if (UNLIKELY(set->has_states))
    states_close(slab->base, slab->class);
  usage_move_begin(UNIT_BYTES << order);
  set->has_news = true;
  set->slab_bytes -= UNIT_BYTES << order;
  bit_set(set->many, slab->class, --set->classes[slab->class].slab_count >= SLABS_MANY);
  set->counters.slabs_closed++;
  unsigned keep =
      advice_is_wanted() ? observers.slab_closed(class_bytes(slab->class), UNIT_BYTES << order) : KEEP_BY_PRESET;
  run_give(slab->base, order, keep);
}

NOINLINE void slab_got_emptier(struct slab_set *set, struct slab *slab) {
  unsigned cls = slab->class;
  if (slab->rest >= REST_PURGING)
    return; /* slab_set_holes_give will put it into a list */
  if (slab_is_empty(slab)) {
    slab_list_leave(set, slab);
    if (first_partial(set, cls) != NULL || class_slab_bytes(cls) > KEPT_EMPTY_BYTES_MAX) {
      slab_close(set, slab);
      return;
    }
    bit_set(set->kept, cls, true);
  }
  slab_list_update(set, slab);
}

/* Call after blocks were taken out. Moves the slab if its free_count left its list's range downwards (list_of). */
static void note_taken(struct slab_set *set, struct slab *slab, size_t count) {
  unsigned blocks = size_classes[slab->class].block_count;
  slab->free_count -= (uint32_t)count;
  if (slab->rest == REST_SEEN)
    slab->rest = REST_NONE;
  if (slab->free_count == 0 || (slab->free_count - 1) * FULLNESS_LISTS < slab->list * blocks)
    slab_list_update(set, slab);
}

/* Takes min(wanted, free) blocks, ascending, to slots[-1] downwards. */
static size_t take_from(struct slab *slab, void **slots, size_t wanted) {
  size_t count = min_size(wanted, slab->free_count);
  size_t bytes = class_bytes(slab->class);
  size_t word = slab->hint;
  void **slot = slots;
  void **last = slots - count;
  for (;; word++) {
    uint64_t *place = bitmap_word(slab->bitmap, word), bits = *place;
    char *first = slab->base + word * 64 * bytes;
    if (bits == ~(uint64_t)0 && slot - last >= 64) { /* as in a fresh slab: no bit is looked for */
      for (size_t i = 0; i < 64; i++, first += bytes)
        *--slot = first;
      bits = 0;
    }
    while (bits != 0 && slot != last) {
      *--slot = first + (size_t)__builtin_ctzll(bits) * bytes;
      bits &= bits - 1;
    }
    *place = bits;
    if (slot == last)
      break;
  }
  slab->hint = (uint32_t)word;
  return count;
}

size_t slab_set_take(struct slab_set *set, unsigned cls, void **slots, size_t wanted) {
  size_t taken = 0;
  uint64_t opened = set->counters.slabs_opened;
  while (taken < wanted) {
    struct slab *slab = first_partial(set, cls);
    if (slab == NULL && (taken > 0 || (slab = slab_open(set, cls)) == NULL))
      break;
    size_t count = take_from(slab, slots - taken, wanted - taken);
    note_taken(set, slab, count);
    taken += count;
  }
  set->counters.refills_from_slab += taken > 0 && set->counters.slabs_opened == opened;
  set->classes[cls].taken_blocks += taken;
  add_as_owner(&set->taken_bytes, taken * class_bytes(cls));
  return taken;
}

/* Returns the begin of the slab of 2^order units that an address lies in. */
static char *slab_base(const void *address, unsigned order) {
  return (char *)round_down((uintptr_t)address, UNIT_BYTES << order);
}

static bool find_index(const void *address, unsigned cls, size_t *index) {
  const struct size_class *class = &size_classes[cls];
  size_t offset = (size_t)((const char *)address - slab_base(address, class->order));
  return block_index(class->inverse, offset, index) && *index < class->block_count;
}

bool slab_is_block_start(const void *address, unsigned cls) {
  size_t index;
  return find_index(address, cls, &index);
}

/* Ends the program with the reason why a block in a flush cannot be put back. The pointer was in a bin, so its unit was
 * a slab of the class then. If it is none now, the slab was emptied meanwhile, which needs another free of the
 * block. */
COLD static void flush_fault(const struct slab_set *set, unsigned cls, const void *block) {
  if (map_entry(block) == entry_of(set->key, cls) && !slab_is_block_start(block, cls))
    fault_not_a_block(block);
  fault_double_free(block);
}

/* Where a block's bit is. */
struct place {
  struct slab *slab;
  uint64_t *word; /* of the bitmap */
  size_t index;   /* of the block */
};
static inline uint64_t place_bit(struct place place) { return (uint64_t)1 << place.index % 64; }

/* slab_bytes: class_slab_bytes(cls). is_own: the block's page-map entry is of the set and the class. */
static ALWAYS_INLINE struct place find_place(const struct slab_set *set, unsigned cls, struct map_leaf *leaf,
                                             char *block, size_t slab_bytes, bool is_own) {
  const struct size_class *class = &size_classes[cls];
  struct map_row *row = map_leaf_row(leaf, block);
  size_t offset = (uintptr_t)block & (slab_bytes - 1);
  size_t unit = map_unit_in_row(block - offset), index;
  if (UNLIKELY(!block_index(class->inverse, offset, &index) || !is_own || index >= class->block_count))
    flush_fault(set, cls, block);
  return (struct place){(void *)row->records[unit], bitmap_word(row->bitmaps[0][unit], index / 64), index};
}

/* Call after bits were set; none of them is in a word before `lowest`. */
static ALWAYS_INLINE void note_put_back(struct slab_set *set, struct slab *slab, size_t lowest, size_t count) {
  if (UNLIKELY(slab->rest != REST_NONE))
    slab->rest = slab->rest < REST_PURGING ? REST_NONE : REST_PURGING_STIRRED;
  if (lowest < slab->hint)
    slab->hint = (uint32_t)lowest;
  slab->free_count += (uint32_t)count;
  if (UNLIKELY(slab->free_count > slab->list_until))
    slab_got_emptier(set, slab);
}

static ALWAYS_INLINE void put_back(struct slab_set *set, struct place place, void *block) {
  uint64_t bit = place_bit(place);
  if (UNLIKELY((*place.word & bit) != 0)) /* so are all bits of a slab that was closed since its place was found */
    fault_double_free(block);
  *place.word |= bit;
  note_put_back(set, place.slab, place.index / 64, 1);
}

static ALWAYS_INLINE void note_freed(struct slab_set *set, size_t bytes) {
  set->freed_bytes += bytes;
  if (UNLIKELY(set->freed_bytes >= FREED_STEP)) {
    size_t freed = set->freed_bytes;
    set->freed_bytes = 0;
    usage_freed_add(freed);
  }
}

/* Blocks that are freed one after the other often lie near each other: the nodes of a tree, or a row of blocks. If the
 * next one is so many blocks away at most, it is looked for in the same word of the bitmap. */
#define NEAR_BLOCKS 16u

static ALWAYS_INLINE bool is_near(const void *block, const void *next, size_t bytes) {
  size_t near_bytes = NEAR_BLOCKS * bytes;
  return (size_t)((const char *)next - (const char *)block) + near_bytes < 2 * near_bytes;
}

/* Puts back the first blocks of an array: the one with this index in the slab, and those after it that have their bits
 * in the same word. Returns how many: at most `most`. */
static NOINLINE size_t put_back_word(struct slab_set *set, unsigned cls, struct slab *slab, size_t place,
                                     void *const *blocks, size_t most) {
  const struct size_class class = size_classes[cls];
  const uintptr_t first = (uintptr_t)blocks[0] - place % 64 * class.bytes; /* of the word */
  size_t bytes = min_size(64, class.block_count - round_down(place, 64)) * class.bytes, count = 1;
  uint64_t *word = bitmap_word(slab->bitmap, place / 64), bits = (uint64_t)1 << place % 64, before = *word;
  for (; count < most; count++) {
    size_t offset = (uintptr_t)blocks[count] - first;
    if (offset >= bytes)
      break;
    size_t index;
    if (UNLIKELY(!block_index(class.inverse, offset, &index)))
      break; /* find_place reports it */
    uint64_t bit = (uint64_t)1 << index;
    if (UNLIKELY((bits & bit) != 0))
      fault_double_free(blocks[count]);
    bits |= bit;
  }
  if (UNLIKELY((before & bits) != 0)) /* so are all bits of a slab that was closed */
    fault_double_free((void *)(first + (uintptr_t)__builtin_ctzll(before & bits) * class.bytes));
  *word = before | bits;
  note_put_back(set, slab, place / 64, count);
  return count;
}

size_t slab_set_give_own(struct slab_set *set, unsigned cls, void *const *blocks, size_t count, bool are_freed) {
  const uint32_t own = entry_of(set->key, cls);
  const size_t bytes = class_bytes(cls), slab_bytes = class_slab_bytes(cls);
  size_t given = 0;
  while (given < count) {
    char *block = blocks[given];
    struct map_leaf *leaf = map_leaf(block);
    uint32_t entry = map_leaf_read(leaf, block);
    if (UNLIKELY(entry != own)) {
      if (entries_are_alike(entry, own))
        break;
      flush_fault(set, cls, block);
    }
    struct place place = find_place(set, cls, leaf, block, slab_bytes, true);
    if (given + 1 < count && is_near(block, blocks[given + 1], bytes)) {
      given += put_back_word(set, cls, place.slab, place.index, blocks + given, count - given);
    } else {
      put_back(set, place, block);
      given++;
    }
  }
  set->classes[cls].taken_blocks -= given;
  add_as_owner(&set->taken_bytes, -(given * bytes));
  if (are_freed)
    note_freed(set, given * bytes);
  return given;
}

void slab_set_give(struct slab_set *set, unsigned cls, void *const *blocks, size_t count) {
  size_t given = slab_set_give_own(set, cls, blocks, count, true);
  if (UNLIKELY(given < count))
    fault_double_free(blocks[given]);
}

/* Blocks of other threads come from anywhere in the heap, and another processor may have written their slabs' records
 * last. So the records and bitmaps of a batch are fetched before the first one changes. */
#define MIXED_BATCH 16u

static void give_batch(struct slab_set *set, void *const *blocks, size_t count) {
  struct place places[MIXED_BATCH];
  size_t bytes = 0;
  for (size_t i = 0; i < count; i++) {
    struct map_leaf *leaf = map_leaf(blocks[i]);
    uint32_t entry = map_leaf_read(leaf, blocks[i]);
    unsigned cls = entry_class(entry);
    places[i] = find_place(set, cls, leaf, blocks[i], class_slab_bytes(cls), entry_is_of(entry, set->key));
    __builtin_prefetch(places[i].slab, 1);
    __builtin_prefetch(places[i].word, 1);
    set->classes[cls].taken_blocks--;
    bytes += class_bytes(cls);
  }
  for (size_t i = 0; i < count; i++)
    put_back(set, places[i], blocks[i]);
  add_as_owner(&set->taken_bytes, -bytes);
  note_freed(set, bytes);
}

/* Puts back the first blocks of an array if the second is near the first. Returns how many. */
static size_t give_near(struct slab_set *set, void *const *blocks, size_t count) {
  struct map_leaf *leaf = map_leaf(blocks[0]);
  uint32_t entry = map_leaf_read(leaf, blocks[0]);
  unsigned cls = entry_class(entry);
  size_t bytes = class_bytes(cls);
  if (count < 2 || !is_near(blocks[0], blocks[1], bytes))
    return 0;
  struct place place = find_place(set, cls, leaf, blocks[0], class_slab_bytes(cls), entry_is_of(entry, set->key));
  size_t given = put_back_word(set, cls, place.slab, place.index, blocks, count);
  set->classes[cls].taken_blocks -= given;
  add_as_owner(&set->taken_bytes, -(given * bytes));
  note_freed(set, given * bytes);
  return given;
}

/* Of what comes in no order, only the first block of each batch is asked for its neighbour. */
void slab_set_give_mixed(struct slab_set *set, void *const *blocks, size_t count) {
  while (count > 0) {
    size_t given = give_near(set, blocks, count);
    if (given == 0)
      give_batch(set, blocks, given = min_size(count, MIXED_BATCH));
    blocks += given;
    count -= given;
  }
}

/* The bits are set for a moment, to find a block that is there twice. */
void slab_set_check(struct slab_set *set, unsigned cls, void *const *blocks, size_t count) {
  const uint32_t own = entry_of(set->key, cls);
  for (size_t i = 0; i < 2 * count; i++) {
    void *block = blocks[i < count ? i : i - count];
    struct map_leaf *leaf = map_leaf(block);
    uint32_t entry = map_leaf_read(leaf, block);
    if (UNLIKELY(entry != own && entries_are_alike(entry, own)))
      continue;
    struct place place = find_place(set, cls, leaf, block, class_slab_bytes(cls), entry == own);
    if (i < count && (*place.word & place_bit(place)) != 0)
      fault_double_free(block);
    *place.word ^= place_bit(place);
  }
}

void slab_set_close_empty_of(struct slab_set *set, unsigned cls, size_t looks_max) {
  struct slab *slab = set->classes[cls].lists[FULLNESS_LISTS - 1];
  for (size_t looks = 0; slab != NULL && looks < looks_max; looks++) {
    struct slab *next = slab->next;
    if (slab_is_empty(slab))
      slab_close(set, slab);
    slab = next;
  }
  if (slab == NULL)
    bit_set(set->kept, cls, false);
}

void slab_set_close_empty(struct slab_set *set) {
  for (size_t cls; (cls = bit_find(set->kept, 0, HAK_CLASS_COUNT, true)) < HAK_CLASS_COUNT;)
    slab_set_close_empty_of(set, (unsigned)cls, SIZE_MAX);
}

COLD void slab_set_close_all(struct slab_set *set) {
  hak_assert(set->lists_full);
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    struct slab_class *class = &set->classes[cls];
    for (unsigned list = 0; list <= FULLNESS_FULL; list++)
      while (class->lists[list] != NULL)
        slab_close(set, class->lists[list]);
    hak_assert(class->slab_count == 0);
    class->taken_blocks = 0;
  }
  usage_freed_add(set->freed_bytes + slab_set_taken_bytes(set));
  set->freed_bytes = 0;
  store_relaxed(&set->taken_bytes, 0);
}

#ifdef HAK_DEBUG
static bool slab_is_valid(const struct slab *slab, uint32_t key, unsigned cls, unsigned list) {
  const struct size_class *class = &size_classes[cls];
  unsigned free_count = 0;
  for (unsigned i = 0; i < (class->block_count + 63u) / 64; i++) {
    uint64_t bits = *bitmap_word(slab->bitmap, i);
    if (bits != 0 && i < slab->hint)
      return false;
    free_count += (unsigned)__builtin_popcountll(bits);
  }
  return slab->class == cls && slab->list == list && list_of(slab) == list && free_count == slab->free_count &&
         map_entry(slab->base) == entry_of(key, cls);
}

bool slab_holds(const struct slab_set *set, const void *block, unsigned cls) {
  size_t index;
  return map_entry(block) == entry_of(set->key, cls) && find_index(block, cls, &index) &&
         !bit_is_set(bitmap_word(map_bitmap(slab_base(block, size_classes[cls].order)), index / 64), index % 64);
}

bool slab_set_is_valid(const struct slab_set *set) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    for (unsigned list = 0; list <= FULLNESS_FULL; list++)
      for (const struct slab *slab = set->classes[cls].lists[list]; slab; slab = slab->next)
        if (!slab_is_valid(slab, set->key, cls, list) || (slab_is_empty(slab) && !bit_is_set(set->kept, cls)))
          return false;
  return true;
}
#endif
