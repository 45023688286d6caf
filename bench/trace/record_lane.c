/* record_lane.c: events are written into lanes, buffers with a lock each. A thread has a lane of its own as long as
 * there are no more threads than lanes, and takes another one when it finds it locked. So memory is bounded, whatever
 * the number of threads, and nothing has to be done when a thread ends. */
#include "record.h"

#include <sched.h>
#include <sys/mman.h>

enum { LANE_BYTES = sizeof(struct trace_chunk) + TRACE_PAYLOAD_MAX, FLUSH_US = 1000000 };

/* Under `locked`:
 *   L1  chunk's payload_bytes and items are those of whole events
 *   L2  there is room for one more event */
struct lane {
  _Alignas(64) _Atomic uint32_t locked;
  uint32_t thread;
  uint64_t order, time_us, address; /* of the last event; order is that before the first of the chunk */
  struct trace_chunk *chunk;
};
static struct lane lanes[TRACE_LANES];
static _Atomic uint32_t threads_seen;
static _Atomic uint64_t flush_us; /* when all lanes are written next */
atomic_bool record_is_ending;

bool record_lanes_open(void) {
  static char *memory;
  if (!memory) {
    void *mapped =
        mmap(NULL, (size_t)TRACE_LANES * LANE_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (mapped == MAP_FAILED)
      return false;
    memory = mapped;
  }
  for (uint32_t i = 0; i < TRACE_LANES; i++) {
    lanes[i].chunk = (struct trace_chunk *)(memory + (size_t)i * LANE_BYTES);
    lanes[i].chunk->kind = TRACE_EVENTS;
    lanes[i].chunk->lane = (uint16_t)i;
    lanes[i].chunk->payload_bytes = lanes[i].chunk->items = 0;
    atomic_store(&lanes[i].locked, 0);
  }
  atomic_store(&threads_seen, 0);
  atomic_store(&record_order, 1);
  atomic_store(&flush_us, record_clock_us() + FLUSH_US);
  return true;
}

static bool lane_try(struct lane *lane) {
  return !atomic_load_explicit(&lane->locked, memory_order_relaxed) &&
         !atomic_exchange_explicit(&lane->locked, 1, memory_order_acquire);
}
static void lane_unlock(struct lane *lane) { atomic_store_explicit(&lane->locked, 0, memory_order_release); }

static void lane_write(struct lane *lane) {
  if (lane->chunk->items)
    record_file_chunk(lane->chunk);
  lane->chunk->items = lane->chunk->payload_bytes = 0;
}

void record_lanes_flush(void) {
  for (int i = 0; i < TRACE_LANES; i++) {
    bool is_locked = lane_try(&lanes[i]);
    for (unsigned tries = 0; !is_locked && record_wait(tries); tries++)
      is_locked = lane_try(&lanes[i]);
    if (is_locked) {
      lane_write(&lanes[i]);
      lane_unlock(&lanes[i]);
    } else
      record_lose(lanes[i].chunk->items);
  }
}

/* A program that does little at a time keeps no more than a second to itself. */
__attribute__((noinline, cold)) static void flush_late(uint64_t seen_us, uint64_t now_us) {
  if (atomic_compare_exchange_strong(&flush_us, &seen_us, now_us + FLUSH_US))
    for (int i = 0; i < TRACE_LANES; i++)
      if (lane_try(&lanes[i])) {
        lane_write(&lanes[i]);
        lane_unlock(&lanes[i]);
      }
}

static struct lane *lane_take(uint32_t thread) {
  for (uint32_t i = thread;; i++) {
    struct lane *lane = &lanes[i % TRACE_LANES];
    if (lane_try(lane))
      return lane;
    if ((i - thread) % TRACE_LANES == TRACE_LANES - 1)
      sched_yield();
  }
}

static void record_event(enum trace_event_kind kind, const void *block, size_t size, unsigned alignment_log2,
                         struct record_site site) {
  struct record_thread *self = &record_self;
  if (RECORD_UNLIKELY(self->image != record_image)) {
    self->image = record_image;
    self->number = atomic_fetch_add(&threads_seen, 1) % TRACE_THREADS_MAX + 1;
  }
  struct lane *lane = lane_take(self->number);
  struct trace_chunk *chunk = lane->chunk;
  /* The number is taken under the lock, so those of a lane rise. */
  uint64_t order = atomic_fetch_add_explicit(&record_order, 1, memory_order_acq_rel);
  uint64_t now_us = record_clock_us();
  if (chunk->items == 0) {
    chunk->order = order;
    lane->order = order - 1;
    chunk->time_us = lane->time_us = now_us;
    lane->address = 0;
    lane->thread = 0;
  }
  unsigned char *start = (unsigned char *)(chunk + 1), *at = start + chunk->payload_bytes;
  if (lane->thread != self->number) {
    *at++ = TRACE_THREAD;
    at = trace_put(at, self->number);
    lane->thread = self->number;
  }
  if (now_us > lane->time_us) {
    *at++ = TRACE_TIME;
    at = trace_put(at, now_us - lane->time_us);
    lane->time_us = now_us;
  }
  uint64_t address = (uint64_t)(uintptr_t)block, step = order - lane->order;
  bool is_odd = address % 8;
  *at++ = (unsigned char)(kind | (step == 1 ? TRACE_NEXT : 0) | (is_odd ? TRACE_ODD : 0));
  if (step != 1)
    at = trace_put(at, step);
  lane->order = order;
  if (kind != TRACE_REALLOC_KEPT && kind != TRACE_REALLOC_FREED) {
    at = trace_put(at, trace_fold(is_odd ? (int64_t)(address - lane->address)
                                         : (int64_t)(address / 8) - (int64_t)(lane->address / 8)));
    lane->address = address;
    if (kind != TRACE_FREE && kind != TRACE_REALLOC_TOOK) {
      at = trace_put(at, size);
      if (kind == TRACE_ALIGNED)
        *at++ = (unsigned char)alignment_log2;
      if (size >= TRACE_SITE_SIZE) {
        at = trace_put(at, site.module);
        at = trace_put(at, site.offset);
      }
    }
  }
  chunk->items++;
  chunk->payload_bytes = (uint32_t)(at - start);
  if (RECORD_UNLIKELY(chunk->payload_bytes > TRACE_PAYLOAD_MAX - TRACE_EVENT_MAX ||
                      atomic_load_explicit(&record_is_ending, memory_order_relaxed)))
    lane_write(lane);
  lane_unlock(lane);
  uint64_t late_us = atomic_load_explicit(&flush_us, memory_order_relaxed);
  if (RECORD_UNLIKELY(now_us >= late_us))
    flush_late(late_us, now_us);
}

void record_gave(enum trace_event_kind kind, void *block, size_t size, size_t alignment, const void *site) {
  struct record_thread *self = &record_self;
  self->depth += RECORD_INSIDE;
  struct record_site found = {0, 0};
  if (RECORD_UNLIKELY(size >= TRACE_SITE_SIZE))
    found = record_site_of(self->site ? self->site : site);
  unsigned log2 = alignment > 1 ? 64 - (unsigned)__builtin_clzll(alignment - 1) : 0;
  record_event(kind, block, size, log2, found);
  self->given = block;
  self->depth -= RECORD_INSIDE;
}

void record_took(enum trace_event_kind kind, const void *block) {
  record_self.depth += RECORD_INSIDE;
  record_event(kind, block, 0, 0, (struct record_site){0, 0});
  record_self.depth -= RECORD_INSIDE;
}

void record_not_taken(enum trace_event_kind kind) { record_took(kind, NULL); }
