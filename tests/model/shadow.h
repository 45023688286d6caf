/* shadow.h: what the program believes about its blocks, kept outside the heap under test.
 *
 * A record is one live block. Records form a treap ordered by address (the record's index is the
 * node), so that a new block is compared with its two neighbours: overlap is found at once.
 *   M1  [address, address + usable) of live records do not overlap
 *   M2  the bytes of a live block are the pattern of its tag
 * shadow_insert checks M1, shadow_verify checks M2.
 */
#pragma once

#include "../check.h"
#include "../heap_api.h"

#define SHADOW_RECORDS 8192u
#ifndef SHADOW_FULL_BYTES
#define SHADOW_FULL_BYTES 65536u /* up to here every byte is written and read; above, ends and one byte a page */
#endif

struct shadow_record {
  unsigned char *address; /* NULL: free record */
  size_t size;            /* as asked for */
  size_t usable;
  uint64_t tag;
  uint32_t left, right; /* treap links; index + 1, 0 = none */
  uint32_t priority;
};

struct shadow {
  struct shadow_record records[SHADOW_RECORDS];
  uint32_t root; /* index + 1 */
};

static inline unsigned char shadow_byte(uint64_t tag, size_t i) {
  return (unsigned char)((tag >> (8 * (i & 7))) ^ (i >> 3));
}

/* Walks the bytes that stand for the block: all of them, or both ends and one in each 4 KiB. */
static inline size_t shadow_next(size_t i, size_t size) {
  if (size <= SHADOW_FULL_BYTES || i < 4096 || i + 4096 >= size)
    return i + 1;
  size_t next = i + 4096;
  return next + 4096 > size ? size - 4096 : next;
}

static inline void shadow_fill(const struct shadow_record *record) {
  for (size_t i = 0; i < record->usable; i = shadow_next(i, record->usable)) {
    record->address[i] = shadow_byte(record->tag, i);
  }
}

/* The first `size` bytes still hold the pattern that was written over `record->usable` bytes. */
static inline void shadow_verify(const struct shadow_record *record, const unsigned char *address, size_t size) {
  for (size_t i = 0; i < record->usable && i < size; i = shadow_next(i, record->usable)) {
    CHECK_SAY(address[i] == shadow_byte(record->tag, i), "block %p of %zu bytes changed at %zu", (const void *)address,
              record->size, i);
  }
}

static inline uint32_t shadow_rotate_right(struct shadow *shadow, uint32_t node) {
  uint32_t child = shadow->records[node - 1].left;
  shadow->records[node - 1].left = shadow->records[child - 1].right;
  shadow->records[child - 1].right = node;
  return child;
}

static inline uint32_t shadow_rotate_left(struct shadow *shadow, uint32_t node) {
  uint32_t child = shadow->records[node - 1].right;
  shadow->records[node - 1].right = shadow->records[child - 1].left;
  shadow->records[child - 1].left = node;
  return child;
}

static inline uint32_t shadow_link(struct shadow *shadow, uint32_t node, uint32_t added) {
  if (!node)
    return added;
  struct shadow_record *here = &shadow->records[node - 1], *there = &shadow->records[added - 1];
  int before = there->address < here->address;
  const struct shadow_record *low = before ? there : here, *high = before ? here : there;
  CHECK_SAY(low->address + low->usable <= high->address && low->address != high->address, "%p+%zu overlaps %p+%zu",
            (void *)low->address, low->usable, (void *)high->address, high->usable);
  if (before) {
    here->left = shadow_link(shadow, here->left, added);
    if (shadow->records[here->left - 1].priority > here->priority)
      return shadow_rotate_right(shadow, node);
  } else {
    here->right = shadow_link(shadow, here->right, added);
    if (shadow->records[here->right - 1].priority > here->priority)
      return shadow_rotate_left(shadow, node);
  }
  return node;
}

static inline uint32_t shadow_merge(struct shadow *shadow, uint32_t low, uint32_t high) {
  if (!low || !high)
    return low ? low : high;
  struct shadow_record *a = &shadow->records[low - 1], *b = &shadow->records[high - 1];
  if (a->priority > b->priority) {
    a->right = shadow_merge(shadow, a->right, high);
    return low;
  }
  b->left = shadow_merge(shadow, low, b->left);
  return high;
}

/* Neighbours in address order are ancestors of the new node, so the walk meets every candidate. */
static inline void shadow_insert(struct shadow *shadow, uint32_t index) {
  struct shadow_record *record = &shadow->records[index];
  uint64_t seed = (uintptr_t)record->address ^ record->tag;
  record->left = record->right = 0;
  record->priority = (uint32_t)test_random(&seed);
  shadow->root = shadow_link(shadow, shadow->root, index + 1);
}

static inline void shadow_remove(struct shadow *shadow, uint32_t index) {
  uint32_t *link = &shadow->root;
  struct shadow_record *record = &shadow->records[index];
  while (*link != index + 1) {
    CHECK(*link != 0);
    struct shadow_record *here = &shadow->records[*link - 1];
    link = record->address < here->address ? &here->left : &here->right;
  }
  *link = shadow_merge(shadow, record->left, record->right);
}

/* Small sizes mostly, every scale sometimes. */
static inline size_t shadow_size(uint64_t *seed) {
  uint64_t kind = test_random(seed) % 1000, draw = test_random(seed);
  if (kind < 20)
    return 0;
  if (kind < 700)
    return draw % 513;
  if (kind < 870)
    return draw % 4097;
  if (kind < 960)
    return draw % 65537;
  if (kind < 990)
    return draw % (512u << 10);
  if (kind < 998)
    return draw % (2u << 20);
  return draw % (8u << 20);
}

enum { SHADOW_MALLOC, SHADOW_CALLOC, SHADOW_ALIGNED_ALLOC, SHADOW_MEMALIGN, SHADOW_POSIX_MEMALIGN, SHADOW_WAYS };

struct shadow_request {
  unsigned way; /* SHADOW_WAYS and above: as SHADOW_MALLOC */
  size_t size, alignment, count;
  uint64_t tag;
};

static inline struct shadow_request shadow_draw(uint64_t *seed) {
  struct shadow_request request = {.size = shadow_size(seed), .alignment = 16};
  request.way = (unsigned)(test_random(seed) % 16);
  if (request.way < SHADOW_WAYS && request.way >= SHADOW_ALIGNED_ALLOC) {
    request.alignment = (size_t)8 << (test_random(seed) % 14);
    if (test_random(seed) % 64 == 0)
      request.alignment = (size_t)64 << 10 << (test_random(seed) % 7);
  }
  request.count = test_random(seed) % 8 + 1;
  request.tag = test_random(seed);
  return request;
}

/* The block is the record's from now on. */
static inline void shadow_keep(struct shadow_record *record, void *block, size_t size, uint64_t tag) {
  record->address = block;
  record->size = size;
  record->usable = t_usable_size(block);
  CHECK_SAY(record->usable >= size, "usable %zu of %zu", record->usable, size);
  record->tag = tag;
  shadow_fill(record);
}

/* Allocates by the way that is asked for and checks what the way promises; fills in the record, not the treap. 0 when
 * memory is out. */
static inline int shadow_allocate(struct shadow_record *record, const struct shadow_request *request) {
  size_t size = request->size, alignment = request->alignment;
  void *block = NULL;
  if (request->way == SHADOW_CALLOC) {
    block = t_calloc(request->count, size / request->count);
    size = size / request->count * request->count;
    for (size_t i = 0; block && i < size; i++)
      CHECK_SAY(((unsigned char *)block)[i] == 0, "calloc of %zu", size);
  } else if (request->way == SHADOW_ALIGNED_ALLOC) {
    block = t_aligned_alloc(alignment, size);
  } else if (request->way == SHADOW_MEMALIGN) {
    block = t_memalign(alignment, size);
  } else if (request->way == SHADOW_POSIX_MEMALIGN) {
    int error = t_posix_memalign(&block, alignment, size);
    CHECK(error == 0 || error == ENOMEM);
    if (error)
      block = NULL;
  } else {
    block = t_malloc(size);
  }
  if (!block)
    return 0;
  if (alignment < 16)
    alignment = 8;
  CHECK_SAY((uintptr_t)block % alignment == 0, "%p for alignment %zu, size %zu", block, alignment, size);
  shadow_keep(record, block, size, request->tag);
  return 1;
}

/* The block is as it was left. */
static inline void shadow_check(const struct shadow_record *record) {
  CHECK_SAY(t_usable_size(record->address) == record->usable, "usable size of a block of %zu changed", record->size);
  shadow_verify(record, record->address, record->usable);
}

/* Reallocates a record that is not in the treap; its content must move along. 0 when memory is out: it is as before. */
static inline int shadow_resize(struct shadow_record *record, size_t size, uint64_t tag) {
  shadow_check(record);
  unsigned char *block = t_realloc(record->address, size);
  if (!block) {
    shadow_check(record);
    return 0;
  }
  CHECK((uintptr_t)block % 16 == 0 || size < 16);
  shadow_verify(record, block, record->size < size ? record->size : size);
  shadow_keep(record, block, size, tag);
  return 1;
}
