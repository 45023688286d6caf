/* observers.h: the only table through which the core calls observers (observe/), which watch or advise it.
 *
 * In a build without observers (HAKMEM_OBSERVE=OFF) entries are NULL. They never change while a program runs. Some
 * entries have a flag in the core that tells whether they are wanted. If the flag is set, the entry exists.
 */
#pragma once

#include "base/options.h"
#include "base/words.h"

struct heap;

struct observers {
  /* The process. start: the options were read. tick: at the end of a slow path, without a lock. in_child: prepares the
   * child of a fork. libraries_changed: a library may be unloaded. parts_hold: checks that the figures add up; no
   * thread is in a slow path. */
  void (*start)(void);
  void (*end)(void);
  void (*options_changed)(void);
  void (*tick)(void);
  void (*in_child)(void);
  void (*libraries_changed)(void);
  bool (*parts_hold)(void);

  /* Split heaps (heap/split.h). heap_follow: the owner calls it, in a slow path, with the lock, after split_wanted
   * changed. */
  void (*heap_follow)(struct heap *heap);

  /* Samples. The caller is in a slow path. small_sample: returns the next block of the class, for a request of
   * `size` bytes, if it is a sample; the lock of the heap's pool is held, and given if there is one, or if *is_held is
   * false afterwards: then the lock is stuck. shared_give: a block of the pool without heaps was freed. large_resizing:
   * tells whether the object is a sample; then large_resized must report the result. site: the call site. */
  void *(*small_sample)(struct heap *heap, unsigned cls, size_t size, uintptr_t site, bool *is_held);
  void (*shared_give)(void *block, uint32_t entry);
  void (*large_made)(void *object, size_t bytes, uintptr_t site);
  void (*large_freed)(void *object);
  bool (*large_resizing)(void *object);
  void (*large_resized)(void *object, bool is_done);

  /* Guarded blocks, whose entries are ENTRY_GUARDED. checked_sample: returns one in place of a checked block, or NULL;
   * ask while observers_large_made is set. guarded_free ends the program if the address is no live block; it never
   * waits. is_inside: the caller is in a slow path. guarded_size: 0 for such an address. */
  void *(*checked_sample)(size_t size, size_t alignment, uintptr_t site);
  void (*guarded_free)(void *block, bool is_inside);
  size_t (*guarded_size)(const void *block);

  /* The background thread calls `clock` when os_milliseconds reaches clock_ms (0: not), in a slow path, without a lock;
   * is_resting: before it sleeps or ends. */
  uint64_t (*clock_ms)(void);
  void (*clock)(bool is_resting);

  /* Large objects, while large_is_watched. The core reports that one is made, resized (bytes 0: made for a copy) or
   * freed. hash: of its call site; caller: the return address of the call of malloc, 0: not known; the result is its
   * site from then on. is_kept: the core can keep the pages. The answer is a strategy of policy/keep_policy.h. */
  uint64_t (*large_taken)(uint32_t hash, uintptr_t caller, size_t bytes);
  void (*large_changed)(uint32_t hash, uint64_t site, size_t bytes, size_t wanted);
  unsigned (*large_ended)(uint32_t hash, uint64_t site, size_t bytes, bool is_kept);

  /* The same for slabs, while the option `policy` is on. */
  void (*slab_opened)(size_t block_bytes, size_t slab_bytes);
  unsigned (*slab_closed)(size_t block_bytes, size_t slab_bytes);
};
extern const struct observers observers;

/* Flags: large_made must be called; large_freed and large_resizing must be called. libraries_told: libraries_changed is
 * called whenever a library is unloaded. */
extern HAK_HIDDEN _Atomic bool observers_large_made, observers_large_freed, observers_libraries_told;

static inline bool advice_is_wanted(void) {
  return UNLIKELY(option_value(OPTION_POLICY) != POLICY_OFF) && observers.slab_opened != NULL;
}
static inline bool large_is_watched(void) {
  return advice_is_wanted() || (UNLIKELY(option_value(OPTION_LIVE) == SWITCH_ON) && observers.large_taken != NULL);
}
