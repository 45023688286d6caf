#include "profile/samples.h"

#include "os/os.h"

#include <string.h>

#define PLACES_START ((size_t)4096)
#define BLOCKS_START ((size_t)2048)
#define GRAIN 8u /* of stacks in a chunk */

/* A block in the table; address 0: free. */
struct sample_block {
  uintptr_t address;
  struct sample_weight weight;
  struct sample_stack *stack;
};

/* The position of a stack in GRAINs from the first chunk on, plus 1; 0: the place is free. */
struct sample_place {
  uint32_t hash;
  uint32_t at;
};

_Static_assert(SAMPLES_STACK_BYTES_MAX / GRAIN < UINT32_MAX, "a place holds any stack");
_Static_assert(sizeof(struct sample_stack) % GRAIN == 0 && sizeof(uintptr_t) % GRAIN == 0, "stacks lie at grains");
_Static_assert(sizeof(struct sample_stack) + SAMPLES_DEPTH_MAX * sizeof(uintptr_t) <= SAMPLES_CHUNK_BYTES, "one fits");

/* A table is full at three quarters. */
static bool is_full(size_t count, size_t capacity) { return count >= capacity - capacity / 4; }

static size_t table_bytes(size_t entries, size_t entry_bytes) {
  return round_up(entries * entry_bytes, os_page_bytes());
}

static void *table_map(size_t entries, size_t entry_bytes) {
  return os_map(table_bytes(entries, entry_bytes), os_page_bytes());
}

static void table_unmap(void *table, size_t entries, size_t entry_bytes) {
  if (table)
    os_unmap(table, table_bytes(entries, entry_bytes));
}

/* --- stacks --- */

static uint32_t stack_hash(const uintptr_t *addresses, unsigned depth) {
  uint64_t hash = depth;
  for (unsigned i = 0; i < depth; i++) {
    hash = (hash ^ addresses[i]) * MIX_STEP;
    hash ^= hash >> 32;
  }
  return (uint32_t)hash;
}

static struct sample_stack *stack_at(const struct samples *samples, uint32_t at) {
  size_t offset = (size_t)(at - 1) * GRAIN;
  return (struct sample_stack *)(void *)(samples->chunks[offset / SAMPLES_CHUNK_BYTES] + offset % SAMPLES_CHUNK_BYTES);
}

static bool stack_is(const struct sample_stack *stack, const uintptr_t *addresses, unsigned depth) {
  return stack->depth == depth && memcmp(sample_stack_addresses(stack), addresses, depth * sizeof *addresses) == 0;
}

static size_t stacks_bytes(const struct samples *samples) {
  return samples->chunk_count * SAMPLES_CHUNK_BYTES + table_bytes(samples->place_capacity, sizeof(struct sample_place));
}

/* Returns the place of this stack, or a free one. There is always a free place. */
static struct sample_place *place_of(const struct samples *samples, uint32_t hash, const uintptr_t *addresses,
                                     unsigned depth) {
  size_t mask = samples->place_capacity - 1;
  for (size_t i = hash & mask;; i = (i + 1) & mask) {
    struct sample_place *place = &samples->places[i];
    if (place->at == 0 || (place->hash == hash && stack_is(stack_at(samples, place->at), addresses, depth)))
      return place;
  }
}

/* Both tables exist for a moment, and count against the limit. */
static bool places_grow(struct samples *samples) {
  size_t before = samples->place_capacity;
  size_t capacity = before ? 2 * before : PLACES_START;
  if (stacks_bytes(samples) + table_bytes(capacity, sizeof(struct sample_place)) > SAMPLES_STACK_BYTES_MAX)
    return false;
  struct sample_place *places = table_map(capacity, sizeof *places);
  if (places == NULL)
    return false;
  for (size_t i = 0; i < before; i++) {
    struct sample_place place = samples->places[i];
    size_t to = place.hash & (capacity - 1);
    if (place.at == 0)
      continue;
    while (places[to].at != 0)
      to = (to + 1) & (capacity - 1);
    places[to] = place;
  }
  table_unmap(samples->places, before, sizeof *places);
  samples->places = places;
  samples->place_capacity = capacity;
  return true;
}

static bool chunk_add(struct samples *samples) {
  if (samples->chunk_count == SAMPLES_CHUNKS || stacks_bytes(samples) + SAMPLES_CHUNK_BYTES > SAMPLES_STACK_BYTES_MAX)
    return false;
  char *chunk = os_map(SAMPLES_CHUNK_BYTES, os_page_bytes());
  if (chunk == NULL)
    return false;
  samples->chunks[samples->chunk_count++] = chunk;
  samples->chunk_used = 0;
  return true;
}

/* Appends the stack and notes its position. False: there is no room. */
static bool stack_put(struct samples *samples, struct sample_place *place, uint32_t hash, const uintptr_t *addresses,
                      unsigned depth) {
  size_t bytes = sizeof(struct sample_stack) + depth * sizeof *addresses;
  if ((samples->chunk_count == 0 || samples->chunk_used + bytes > SAMPLES_CHUNK_BYTES) && !chunk_add(samples))
    return false;
  size_t offset = (samples->chunk_count - 1) * SAMPLES_CHUNK_BYTES + samples->chunk_used;
  *place = (struct sample_place){.hash = hash, .at = (uint32_t)(offset / GRAIN) + 1};
  struct sample_stack *stack = stack_at(samples, place->at);
  *stack = (struct sample_stack){.hash = hash, .depth = depth};
  memcpy(stack + 1, addresses, depth * sizeof *addresses);
  samples->chunk_used += bytes;
  samples->stack_count++;
  return true;
}

static struct sample_stack *stack_of(struct samples *samples, const uintptr_t *addresses, unsigned depth) {
  static const uintptr_t no_address;
  addresses = depth ? addresses : &no_address; /* it may be NULL */
  depth = depth < SAMPLES_DEPTH_MAX ? depth : SAMPLES_DEPTH_MAX;
  uint32_t hash = stack_hash(addresses, depth);
  struct sample_place *place = samples->place_capacity ? place_of(samples, hash, addresses, depth) : NULL;
  if (place == NULL || (place->at == 0 && is_full(samples->stack_count, samples->place_capacity))) {
    if (!places_grow(samples))
      return &samples->others;
    place = place_of(samples, hash, addresses, depth);
  }
  if (place->at == 0 && !stack_put(samples, place, hash, addresses, depth))
    return &samples->others;
  return stack_at(samples, place->at);
}

/* --- sums --- */

static struct sample_weight weight_sum(struct sample_weight a, struct sample_weight b) {
  return (struct sample_weight){a.bytes + b.bytes, a.objects_1024 + b.objects_1024};
}

static struct sample_weight weight_difference(struct sample_weight a, struct sample_weight b) {
  return (struct sample_weight){a.bytes - b.bytes, a.objects_1024 - b.objects_1024};
}

/* Adds a block's weight to a stack, or takes it away, which is one event. */
static void note_change(struct samples *samples, struct sample_stack *stack, struct sample_weight weight,
                        bool is_added) {
  if (stack->changed <= samples->peak_event)
    stack->before = stack->live;
  stack->changed = ++samples->events;
  if (!is_added) {
    stack->live = weight_difference(stack->live, weight);
    samples->live = weight_difference(samples->live, weight);
    return;
  }
  stack->allocated = weight_sum(stack->allocated, weight);
  stack->live = weight_sum(stack->live, weight);
  samples->allocated = weight_sum(samples->allocated, weight);
  samples->live = weight_sum(samples->live, weight);
  if (samples->live.bytes > samples->peak_bytes) {
    samples->peak_bytes = samples->live.bytes;
    samples->peak_event = samples->events;
  }
}

struct sample_weight samples_at_peak(const struct samples *samples, const struct sample_stack *stack) {
  return stack->changed <= samples->peak_event ? stack->live : stack->before;
}

/* --- blocks --- */

static size_t block_home(uintptr_t address, size_t capacity) { return (address * MIX_STEP >> 32) & (capacity - 1); }

/* Returns the place of this block, or a free one; NULL without a table. */
static struct sample_block *block_of(const struct samples *samples, uintptr_t address) {
  if (samples->block_capacity == 0)
    return NULL;
  size_t mask = samples->block_capacity - 1, i = block_home(address, samples->block_capacity);
  while (samples->blocks[i].address != 0 && samples->blocks[i].address != address)
    i = (i + 1) & mask;
  return &samples->blocks[i];
}

static bool blocks_grow(struct samples *samples) {
  struct sample_block *former = samples->blocks;
  size_t before = samples->block_capacity;
  size_t capacity = before ? 2 * before : BLOCKS_START;
  struct sample_block *blocks = capacity <= SAMPLES_BLOCKS_MAX ? table_map(capacity, sizeof *blocks) : NULL;
  if (blocks == NULL)
    return false;
  samples->blocks = blocks;
  samples->block_capacity = capacity;
  for (size_t i = 0; i < before; i++)
    if (former[i].address != 0)
      *block_of(samples, former[i].address) = former[i];
  table_unmap(former, before, sizeof *former);
  return true;
}

/* Entries after the gap that would not be found across it move up. */
static void block_take_out(struct samples *samples, struct sample_block *block) {
  size_t mask = samples->block_capacity - 1;
  size_t gap = (size_t)(block - samples->blocks);
  for (size_t i = (gap + 1) & mask; samples->blocks[i].address != 0; i = (i + 1) & mask) {
    size_t home = block_home(samples->blocks[i].address, samples->block_capacity);
    if (((i - home) & mask) < ((i - gap) & mask))
      continue; /* its home lies behind the gap */
    samples->blocks[gap] = samples->blocks[i];
    gap = i;
  }
  samples->blocks[gap].address = 0;
  samples->block_count--;
}

static struct sample_block *block_find(const struct samples *samples, const void *block) {
  struct sample_block *found = block ? block_of(samples, (uintptr_t)block) : NULL;
  return found && found->address != 0 ? found : NULL;
}

bool samples_add(struct samples *samples, const void *block, const uintptr_t *stack, unsigned depth,
                 struct sample_weight weight) {
  samples_remove(samples, block); /* an entry of that address is stale: its free was not reported */
  if (block == NULL || (is_full(samples->block_count, samples->block_capacity) && !blocks_grow(samples))) {
    samples->dropped = weight_sum(samples->dropped, weight);
    return false;
  }
  struct sample_block *place = block_of(samples, (uintptr_t)block);
  *place = (struct sample_block){(uintptr_t)block, weight, stack_of(samples, stack, depth)};
  samples->block_count++;
  note_change(samples, place->stack, weight, true);
  return true;
}

bool samples_remove(struct samples *samples, const void *block) {
  struct sample_block *found = block_find(samples, block);
  if (found == NULL)
    return false;
  note_change(samples, found->stack, found->weight, false);
  block_take_out(samples, found);
  return true;
}

/* The weight stays, so no sum changes. */
bool samples_rename(struct samples *samples, const void *block, const void *renamed) {
  struct sample_block *found = block_find(samples, block);
  if (found == NULL || renamed == NULL)
    return false;
  if (renamed != block && samples_remove(samples, renamed))
    found = block_find(samples, block); /* it may have moved up */
  struct sample_block kept = {(uintptr_t)renamed, found->weight, found->stack};
  block_take_out(samples, found);
  *block_of(samples, kept.address) = kept; /* the other entry's place is free now */
  samples->block_count++;
  return true;
}

/* --- all of them --- */

void samples_clear(struct samples *samples) {
  table_unmap(samples->blocks, samples->block_capacity, sizeof *samples->blocks);
  table_unmap(samples->places, samples->place_capacity, sizeof *samples->places);
  for (size_t i = 0; i < samples->chunk_count; i++)
    os_unmap(samples->chunks[i], SAMPLES_CHUNK_BYTES);
  *samples = (struct samples){0};
}

bool samples_copy_stacks(struct samples *copy, const struct samples *samples) {
  *copy = *samples;
  copy->blocks = NULL;
  copy->places = NULL;
  copy->block_capacity = copy->block_count = copy->place_capacity = copy->chunk_count = 0;
  if (samples->place_capacity) {
    copy->places = table_map(samples->place_capacity, sizeof *copy->places);
    if (copy->places == NULL) {
      samples_clear(copy);
      return false;
    }
    copy->place_capacity = samples->place_capacity;
    memcpy(copy->places, samples->places, samples->place_capacity * sizeof *copy->places);
  }
  for (; copy->chunk_count < samples->chunk_count; copy->chunk_count++) {
    char *chunk = os_map(SAMPLES_CHUNK_BYTES, os_page_bytes());
    if (chunk == NULL) {
      samples_clear(copy);
      return false;
    }
    bool is_last = copy->chunk_count + 1 == samples->chunk_count;
    memcpy(chunk, samples->chunks[copy->chunk_count], is_last ? samples->chunk_used : SAMPLES_CHUNK_BYTES);
    copy->chunks[copy->chunk_count] = chunk;
  }
  return true;
}

const struct sample_stack *samples_next(const struct samples *samples, size_t *cursor) {
  if (*cursor == 0) {
    *cursor = 1;
    if (samples->others.changed)
      return &samples->others;
  }
  while (*cursor - 1 < samples->place_capacity) {
    uint32_t at = samples->places[(*cursor)++ - 1].at;
    if (at)
      return stack_at(samples, at);
  }
  return NULL;
}

size_t samples_bytes(const struct samples *samples) {
  return stacks_bytes(samples) + table_bytes(samples->block_capacity, sizeof(struct sample_block));
}

#ifdef HAK_DEBUG
static bool is_same(struct sample_weight a, struct sample_weight b) {
  return a.bytes == b.bytes && a.objects_1024 == b.objects_1024;
}

/* Checks S1; that every stack and block can be found; and that the peak is the sum of its parts. */
bool samples_are_valid(const struct samples *samples) {
  struct sample_weight blocks = {0}, live = {0}, allocated = {0}, peak = {0};
  size_t count = 0;
  bool found = true;
  for (size_t i = 0; i < samples->block_capacity; i++) {
    const struct sample_block *block = &samples->blocks[i];
    if (block->address == 0)
      continue;
    found &= block_of(samples, block->address) == block;
    blocks = weight_sum(blocks, block->weight);
    count++;
  }
  size_t cursor = 0;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;) {
    const uintptr_t *addresses = sample_stack_addresses(stack);
    if (stack != &samples->others)
      found &= stack_at(samples, place_of(samples, stack->hash, addresses, stack->depth)->at) == stack;
    live = weight_sum(live, stack->live);
    allocated = weight_sum(allocated, stack->allocated);
    peak = weight_sum(peak, samples_at_peak(samples, stack));
  }
  return found && count == samples->block_count && is_same(blocks, samples->live) && is_same(live, samples->live) &&
         is_same(allocated, samples->allocated) && peak.bytes == samples->peak_bytes &&
         samples->live.bytes <= samples->peak_bytes;
}
#endif
