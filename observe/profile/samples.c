#include "profile/samples.h"

#include "os/os.h"

#include <string.h>

#define BUCKETS ((size_t)1 << 14) /* of stacks */
#define BLOCKS_START ((size_t)2048)

/* A block in the table; address 0: free. */
struct sample_block {
  uintptr_t address;
  struct sample_weight weight;
  struct sample_stack *stack;
};

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

static size_t stack_bytes(unsigned depth) { return sizeof(struct sample_stack) + depth * sizeof(uintptr_t); }

static size_t stacks_bytes(const struct samples *samples) {
  return samples->chunk_count * SAMPLES_CHUNK_BYTES + (samples->buckets ? table_bytes(BUCKETS, sizeof(void *)) : 0);
}

/* NULL: there is no such stack. */
static struct sample_stack *stack_find(const struct samples *samples, uint32_t hash, const uintptr_t *addresses,
                                       unsigned depth) {
  struct sample_stack *stack = samples->buckets[hash % BUCKETS];
  while (stack && (stack->hash != hash || stack->depth != depth ||
                   memcmp(sample_stack_addresses(stack), addresses, depth * sizeof *addresses) != 0))
    stack = stack->next;
  return stack;
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

/* NULL: there is no room. */
static struct sample_stack *stack_make(struct samples *samples, uint32_t hash, const uintptr_t *addresses,
                                       unsigned depth) {
  bool has_room = samples->chunk_count > 0 && samples->chunk_used + stack_bytes(depth) <= SAMPLES_CHUNK_BYTES;
  if (!has_room && !chunk_add(samples))
    return NULL;
  struct sample_stack **bucket = &samples->buckets[hash % BUCKETS];
  struct sample_stack *stack = (void *)(samples->chunks[samples->chunk_count - 1] + samples->chunk_used);
  *stack = (struct sample_stack){.next = *bucket, .hash = hash, .depth = depth};
  memcpy(stack + 1, addresses, depth * sizeof *addresses);
  samples->chunk_used += stack_bytes(depth);
  return *bucket = stack;
}

static struct sample_stack *stack_of(struct samples *samples, const uintptr_t *addresses, unsigned depth) {
  static const uintptr_t no_address;
  addresses = depth ? addresses : &no_address; /* it may be NULL */
  depth = depth < SAMPLES_DEPTH_MAX ? depth : SAMPLES_DEPTH_MAX;
  uint32_t hash = stack_hash(addresses, depth);
  if (samples->buckets == NULL)
    samples->buckets = table_map(BUCKETS, sizeof *samples->buckets);
  struct sample_stack *stack = samples->buckets ? stack_find(samples, hash, addresses, depth) : NULL;
  if (stack == NULL && samples->buckets)
    stack = stack_make(samples, hash, addresses, depth);
  return stack ? stack : &samples->others;
}

/* --- sums --- */

/* times: 1; or -1, to take the weight away. */
static void weight_add(struct sample_weight *sum, struct sample_weight weight, int times) {
  sum->bytes += weight.bytes * (uint64_t)times;
  sum->objects_1024 += weight.objects_1024 * (uint64_t)times;
}

/* Adds a block's weight to a stack, or takes it away, which is one event. */
static void note_change(struct samples *samples, struct sample_stack *stack, struct sample_weight weight, int times) {
  if (stack->changed <= samples->peak_event)
    stack->before = stack->live;
  stack->changed = ++samples->events;
  weight_add(&stack->live, weight, times);
  weight_add(&samples->live, weight, times);
  if (times < 0)
    return;
  weight_add(&stack->allocated, weight, 1);
  weight_add(&samples->allocated, weight, 1);
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
    weight_add(&samples->dropped, weight, 1);
    return false;
  }
  struct sample_block *place = block_of(samples, (uintptr_t)block);
  *place = (struct sample_block){(uintptr_t)block, weight, stack_of(samples, stack, depth)};
  samples->block_count++;
  note_change(samples, place->stack, weight, 1);
  return true;
}

bool samples_remove(struct samples *samples, const void *block) {
  struct sample_block *found = block_find(samples, block);
  if (found == NULL)
    return false;
  note_change(samples, found->stack, found->weight, -1);
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
  table_unmap(samples->buckets, BUCKETS, sizeof *samples->buckets);
  for (size_t i = 0; i < samples->chunk_count; i++)
    os_unmap(samples->chunks[i], SAMPLES_CHUNK_BYTES);
  *samples = (struct samples){0};
}

bool samples_copy_stacks(struct samples *copy, const struct samples *samples) {
  *copy = *samples;
  copy->blocks = NULL;
  copy->buckets = NULL;
  copy->block_capacity = copy->block_count = 0;
  for (copy->chunk_count = 0; copy->chunk_count < samples->chunk_count; copy->chunk_count++) {
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

/* A chunk that has no room for one more stack ends with zeros. */
const struct sample_stack *samples_next(const struct samples *samples, size_t *cursor) {
  while (*cursor < samples->chunk_count * SAMPLES_CHUNK_BYTES) {
    size_t offset = *cursor % SAMPLES_CHUNK_BYTES;
    const struct sample_stack *stack = (const void *)(samples->chunks[*cursor / SAMPLES_CHUNK_BYTES] + offset);
    if (offset + sizeof *stack <= SAMPLES_CHUNK_BYTES && stack->changed) {
      *cursor += stack_bytes(stack->depth);
      return stack;
    }
    *cursor += SAMPLES_CHUNK_BYTES - offset;
  }
  bool is_told = *cursor == SIZE_MAX || samples->others.changed == 0;
  *cursor = SIZE_MAX;
  return is_told ? NULL : &samples->others;
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
    weight_add(&blocks, block->weight, 1);
    count++;
  }
  size_t cursor = 0;
  for (const struct sample_stack *stack; (stack = samples_next(samples, &cursor)) != NULL;) {
    const uintptr_t *addresses = sample_stack_addresses(stack);
    if (stack != &samples->others)
      found &= stack_find(samples, stack->hash, addresses, stack->depth) == stack;
    weight_add(&live, stack->live, 1);
    weight_add(&allocated, stack->allocated, 1);
    weight_add(&peak, samples_at_peak(samples, stack), 1);
  }
  return found && count == samples->block_count && is_same(blocks, samples->live) && is_same(live, samples->live) &&
         is_same(allocated, samples->allocated) && peak.bytes == samples->peak_bytes &&
         samples->live.bytes <= samples->peak_bytes;
}
#endif
