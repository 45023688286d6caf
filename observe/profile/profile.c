#include "profile/profile.h"

#include "base/probe.h"
#include "budget/usage.h"
#include "count/tally.h"
#include "hakmem/hakmem.h"
#include "inspect/process.h"
#include "large/packed.h"
#include "os/os.h"
#include "profile/unwind.h"
#include "threads/registry.h"
#include "threads/watch.h"

static struct {
  struct lock start_lock; /* before any other lock */
  struct lock lock;
  struct samples samples;
  uint64_t interval; /* 0: never started */
  uint64_t start_ns;
} profile SPARSE;

_Static_assert(sizeof(struct unwind_stack) == HEAP_STACK_NOTES * sizeof(uintptr_t), "a heap has room for it");

bool profile_is_on(void) { return tally_interval(TALLY_PROFILE) != 0; }
bool profile_was_started(void) { return atomic_load_explicit(&pool_shared_id, memory_order_acquire) != 0; }
/* The pool of the samples. A profile was started. */
static struct pool *shared_pool(void) {
  return pool_by_id(atomic_load_explicit(&pool_shared_id, memory_order_acquire));
}

/* --- start and end --- */

bool profile_start(uint64_t interval) {
  HOLD_LOCK(&profile.start_lock); /* or two first calls would make two pools */
  interval = min_size(interval, TALLY_INTERVAL_MAX);
  struct pool *pool = profile_was_started() ? shared_pool() : pool_make_shared(); /* takes locks */
  if (pool == NULL)
    return false;
  lock_take(&profile.lock);
  samples_clear(&profile.samples);
  profile.interval = interval;
  profile.start_ns = os_nanoseconds();
  atomic_store_explicit(&pool_shared_id, pool->id, memory_order_release);
  store_relaxed(&observers_large_freed, true);
  tally_sample(TALLY_PROFILE, interval);
  lock_give(&profile.lock);
  tally_broadcast();
  return true;
}

void profile_stop(void) {
  HOLD_LOCK(&profile.lock);
  tally_sample(TALLY_PROFILE, 0);
}

bool profile_copy(struct samples *copy, struct pprof_about *about) {
  HOLD_LOCK(&profile.lock);
  *about = (struct pprof_about){.period_bytes = profile.interval,
                                .time_ns = os_epoch_nanoseconds(),
                                .duration_ns = profile.interval ? os_nanoseconds() - profile.start_ns : 0,
                                .version = hak_version()};
  return samples_copy_stacks(copy, &profile.samples);
}

void profile_add_to(struct os_file_part *file) {
  struct samples copy;
  struct pprof_about about;
  if (!profile_copy(&copy, &about)) {
    file->error = OS_FILE_NO_MEMORY;
    return;
  }
  pprof_add(file, &copy, &about);
  samples_clear(&copy);
}

enum os_file_error profile_write(const char *path) {
  struct os_file_part file;
  if (!os_file_begin(&file, path))
    profile_add_to(&file);
  return os_file_end(&file);
}

void profile_stats(struct hak_stats *out) {
  HOLD_LOCK(&profile.lock);
  out->profile_live_bytes = profile.samples.live.bytes;
  out->profile_samples = profile.samples.block_count;
  out->profile_dropped_bytes = profile.samples.dropped.bytes;
  out->profile_table_bytes = samples_bytes(&profile.samples);
}

/* --- samples --- */

/* A block as long as the interval is always a sample, and stands for itself. */
static struct sample_weight weight_of(size_t bytes, uint32_t picks, uint64_t interval) {
  uint64_t stands_for = bytes >= interval ? bytes : picks * interval;
  return (struct sample_weight){
      .bytes = stands_for,
      .objects_1024 = bytes >= interval ? 1024 : (uint64_t)((unsigned __int128)stands_for * 1024 / bytes),
  };
}

void profile_add(struct heap *heap, void *block, size_t bytes, uint32_t picks, uintptr_t site) {
  uintptr_t addresses[SAMPLES_DEPTH_MAX];
  unsigned depth = unwind_from(site, addresses, SAMPLES_DEPTH_MAX, heap_stack_notes(heap));
  struct sample_weight weight = weight_of(bytes, picks, heap_tally(heap)->interval);
  HAK_PROBE(sample, block, bytes, weight.bytes, depth);
  HOLD_LOCK(&profile.lock);
  if (profile_is_on()) /* else it was stopped meanwhile, and nobody may tell of the block's free */
    samples_add(&profile.samples, block, addresses, depth, weight);
}

void *profile_small_sample(struct heap *heap, unsigned cls, uint32_t picks, uintptr_t site, bool *is_held) {
  size_t bytes = class_bytes(cls);
  if (!profile_is_on())
    return NULL;
  bool is_packed = usage_is_short(); /* then a slab of the shared pool would be too much for a few samples */
  int counted = !is_packed;          /* no class counts packed blocks */
  tally_allocated(heap, cls, counted);
  heap_unlock(heap);
  void *block = is_packed ? packed_take(bytes, bytes & -bytes) : pool_shared_take(shared_pool(), cls);
  if (block == NULL) {
    *is_held = heap_lock(heap);
    tally_allocated(heap, cls, -counted);
    return NULL;
  }
  profile_add(heap, block, bytes, picks, site);
  return block;
}

void profile_forget(void *block) {
  HOLD_LOCK(&profile.lock);
  samples_remove(&profile.samples, block);
  if (profile.samples.block_count == 0 && !profile_is_on())
    store_relaxed(&observers_large_freed, false); /* frees need no look-up any more */
}

void profile_shared_give(void *block, uint32_t entry) {
  profile_forget(block); /* P2 */
  pool_shared_give(shared_pool(), entry_class(entry), block);
}

void profile_large_made(void *object, size_t bytes, uintptr_t site) {
  if (!profile_is_on())
    return;
  struct heap *heap = heap_of_thread();
  if (heap == NULL || !heap_lock(heap))
    return;
  heap_follow_tally(heap);
  uint32_t picks = tally_picks(heap, 0, bytes);
  heap_unlock(heap);
  if (picks > 0)
    profile_add(heap, object, bytes, picks, site);
}

/* Objects lie at multiples of 16, so no object has this address. */
static void *address_aside(void *object) { return (char *)object + 1; }

bool profile_large_resizing(void *object) {
  HOLD_LOCK(&profile.lock);
  return samples_rename(&profile.samples, object, address_aside(object));
}

void profile_large_resized(void *object, bool is_done) {
  HOLD_LOCK(&profile.lock);
  if (is_done)
    samples_remove(&profile.samples, address_aside(object));
  else
    samples_rename(&profile.samples, address_aside(object), object);
}
