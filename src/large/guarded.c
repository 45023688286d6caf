#include "large/guarded.h"

#include "budget/usage.h"
#include "os/fault.h"
#include "os/lock.h"
#include "os/os.h"
#include "pages/page_map.h"

#include <string.h>

#define WAITING_MAX 64u
#define WAITS_MIN 32u /* others that are freed before its addresses serve again */
#define KEPT_BODY_MAX ((size_t)256 * 1024)
#define KEPT_BYTES_MAX ((size_t)4 << 20)
#define WORD_BYTES sizeof(uint64_t)

bool guarded_is_on;

static uint64_t mask, factor; /* const after the start; a fork's child has live objects with words of them */

struct span {
  char *base; /* NULL: none */
  size_t front, bytes;
  size_t kept; /* bytes from the base on whose pages stay: they are zero, and count as tables */
};

static struct {
  struct lock lock;
  struct span spans[WAITING_MAX]; /* a ring */
  uint32_t next;                  /* the place that waits longest */
  _Atomic size_t kept_bytes;
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

/* Takes a span out of the ring. The lock is held. */
static struct span waiting_take(uint32_t place) {
  struct span span = waiting.spans[place];
  waiting.spans[place] = (struct span){0};
  add_as_owner(&waiting.kept_bytes, -span.kept);
  return span;
}

static void span_end(const struct span *span) {
  if (span->base == NULL)
    return;
  map_entry_set(span->base, ENTRY_NONE);
  if (!os_unmap(span->base - span->front, span->front + span->bytes)) /* too many mappings: the addresses are lost */
    os_purge(span->base, span->bytes);
  usage_move(USAGE_TABLES, USAGE_NOWHERE, span->kept);
}

static void guarded_release(void) {
  for (uint32_t i = 0; i < WAITING_MAX; i++) {
    lock_take(&waiting.lock);
    struct span span = waiting_take(i);
    lock_give(&waiting.lock);
    span_end(&span);
  }
}

COLD size_t guarded_trim(void) {
  size_t given_back = 0;
  for (uint32_t i = 0; i < WAITING_MAX && load_relaxed(&waiting.kept_bytes) > 0; i++) {
    HOLD_LOCK(&waiting.lock);
    struct span *span = &waiting.spans[i];
    if (span->kept == 0 || !os_seal(span->base, span->kept))
      continue;
    given_back += span->kept;
    add_as_owner(&waiting.kept_bytes, -span->kept);
    span->kept = 0;
  }
  usage_move(USAGE_TABLES, USAGE_NOWHERE, given_back);
  return given_back;
}

/* Returns a span of these lengths that has waited long enough and kept its pages; its base is NULL if there is none. */
static struct span span_again(size_t front, size_t bytes, size_t alignment) {
  if (load_relaxed(&waiting.kept_bytes) == 0)
    return (struct span){0};
  HOLD_LOCK(&waiting.lock);
  for (uint32_t i = 0; i < WAITING_MAX - WAITS_MIN; i++) {
    uint32_t place = (waiting.next + i) % WAITING_MAX;
    const struct span *span = &waiting.spans[place];
    if (span->kept > 0 && span->front == front && span->bytes == bytes &&
        ((uintptr_t)span->base & (alignment - 1)) == 0)
      return waiting_take(place);
  }
  return (struct span){0};
}

char *guarded_map(size_t size, size_t room, size_t alignment, size_t front) {
  size_t total = front + guarded_bytes(room);
  alignment = max_size(alignment, UNIT_BYTES);
  if (total < room)
    return NULL;
  struct span again = span_again(front, total - front, alignment);
  if (again.base != NULL && os_commit(again.base, body_bytes(size))) {
    usage_move(USAGE_TABLES, USAGE_NOWHERE, again.kept);
    return again.base;
  }
  span_end(&again);
  char *start = os_reserve(total, alignment);
  if (start == NULL) {
    guarded_release();
    start = os_reserve(total, alignment);
  }
  if (start != NULL && !(os_commit(start + front, body_bytes(size)) && map_cover(start + front, UNIT_BYTES))) {
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

/* Takes the access to a span of which so many bytes had it. The pages of a short object go only if few of them were
 * written: the next object would fault them in again. */
static bool span_close(struct span *span, size_t body) {
  bool may_keep = body <= KEPT_BODY_MAX && load_relaxed(&waiting.kept_bytes) + body <= KEPT_BYTES_MAX;
  if (may_keep && os_resident_bytes(span->base, body) > body / 2) {
    memset(span->base, 0, body);
    if (os_forbid(span->base, body)) {
      span->kept = body;
      usage_move(USAGE_NOWHERE, USAGE_TABLES, body);
      return true;
    }
  }
  return os_seal(span->base, span->bytes);
}

void guarded_end(const struct large *range) {
  size_t front = range->guard_order != 0 ? (size_t)1 << range->guard_order : 0;
  struct span span = {.front = front, .bytes = large_range_bytes(range), .base = range->base};
  if (os_memory_limit() == SIZE_MAX && !usage_own_limit_is_near() && span_close(&span, guarded_room(range))) {
    lock_take(&waiting.lock);
    struct span oldest = waiting_take(waiting.next);
    waiting.spans[waiting.next] = span;
    add_as_owner(&waiting.kept_bytes, span.kept);
    waiting.next = (waiting.next + 1) % WAITING_MAX;
    lock_give(&waiting.lock);
    span = oldest;
  }
  span_end(&span);
}
