#include "large/guarded.h"

#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/page_map.h"

#include <string.h>

#define WAITING_MAX 32u
#define WORD_BYTES sizeof(uint64_t)

bool guarded_is_on;

static uint64_t mask, factor; /* const after the start; a fork's child has live objects with words of them */

static struct {
  struct lock lock;
  struct span {
    char *start, *base;
    size_t front, bytes;
  } spans[WAITING_MAX];
  uint32_t next;
} waiting;

void guarded_words_begin(void) {
  if (factor != 0)
    return;
  os_random(&mask, sizeof mask);
  os_random(&factor, sizeof factor);
  factor |= 1;
}

void guarded_begin(void) {
  guarded_words_begin();
  guarded_is_on = true;
}

static size_t body_bytes(size_t size) { return round_up(size, os_page_bytes()); }
size_t guarded_bytes(size_t size) { return round_up(body_bytes(size) + os_page_bytes(), UNIT_BYTES); }
size_t guarded_front(size_t alignment) { return usage_is_filling() ? 0 : max_size(alignment, UNIT_BYTES); }
/* Returns the bytes that the program may use in place. */
static size_t guarded_room(const struct large *range) { return body_bytes(range->guarded_size); }

static void span_end(const struct span *span) {
  if (span->start == NULL)
    return;
  map_entry_set(span->base, ENTRY_NONE);
  os_unmap(span->start, span->front + span->bytes);
}

/* Gives all waiting addresses back. */
static void guarded_release(void) {
  for (uint32_t i = 0; i < WAITING_MAX; i++) {
    lock_take(&waiting.lock);
    struct span span = waiting.spans[i];
    waiting.spans[i] = (struct span){0};
    lock_give(&waiting.lock);
    span_end(&span);
  }
}

char *guarded_map(size_t size, size_t room, size_t alignment, size_t front) {
  size_t total = front + guarded_bytes(room);
  alignment = max_size(alignment, UNIT_BYTES);
  if (total < room)
    return NULL;
  char *start = os_reserve(total, alignment);
  if (start == NULL) {
    guarded_release();
    start = os_reserve(total, alignment);
  }
  if (start != NULL && !os_commit(start + front, body_bytes(size))) {
    os_unmap(start, total);
    return NULL;
  }
  return start ? start + front : NULL;
}

uint64_t guarded_word(const char *end) { return (((uintptr_t)end ^ mask) * factor) | 1; }

static bool has_word(const struct large *range) { return guarded_room(range) - range->guarded_size >= WORD_BYTES; }

void guarded_set_size(struct large *range, size_t size) {
  range->guarded_size = size;
  uint64_t word = guarded_word(range->base + size);
  if (has_word(range))
    memcpy(range->base + size, &word, sizeof word);
}

bool guarded_resize(struct large *range, size_t size) {
  size_t pages = guarded_room(range), wanted = body_bytes(size), kept = min_size(size, range->guarded_size);
  bool is_beyond = wanted + os_page_bytes() > large_range_bytes(range);
  if (wanted > pages && (is_beyond || !os_commit(range->base + pages, wanted - pages)))
    return false;
  if (wanted < pages && os_seal(range->base + wanted, pages - wanted))
    pages = wanted;
  memset(range->base + kept, 0, pages - kept);
  guarded_set_size(range, size);
  return true;
}

void guarded_check(const struct large *range) {
  const char *end = range->base + range->guarded_size;
  uint64_t word;
  if (!has_word(range))
    return;
  memcpy(&word, end, sizeof word);
  if (word != guarded_word(end))
    fault_written_beyond(range->base);
}

void guarded_end(const struct large *range) {
  struct span span = {.front = range->guard_front, .bytes = large_range_bytes(range), .base = range->base};
  span.start = span.base - span.front;
  if (os_memory_limit() == SIZE_MAX && os_seal(span.base, span.bytes)) {
    lock_take(&waiting.lock);
    struct span *place = &waiting.spans[waiting.next++ % WAITING_MAX], oldest = *place;
    *place = span;
    lock_give(&waiting.lock);
    span = oldest;
  }
  span_end(&span);
}
