/* observers.h: the one table by which the core calls what only looks at it or advises it (observe/).
 *
 * An entry is NULL where the library is built without (HAKMEM_OBSERVE=OFF), and stays as it is while a program runs. Entries
 * that tell whether something is wanted are flags of the core, which are off then; behind such a flag the entry is there.
 */
#ifndef HAK_BASE_OBSERVERS_H
#define HAK_BASE_OBSERVERS_H

#include "base/options.h"
#include "base/words.h"

struct heap;

struct observers {
  /* The process. start: the options are read. tick: at the end of a slow path, without a lock. in_child: a fork's child is
   * prepared. libraries_told: whenever another library may come to lie where one was unloaded, libraries_changed will be
   * called. parts_hold: nobody is in a slow path; do the figures add up? */
  void (*start)(void);
  void (*end)(void);
  void (*options_changed)(void);
  void (*tick)(void);
  void (*in_child)(void);
  void (*libraries_told)(void);
  void (*libraries_changed)(void);
  bool (*parts_hold)(void);

  /* Split heaps (heap/split.h). heap_follow: the owner, in a slow path, with the lock, after split_wanted changed. */
  void (*heap_follow)(struct heap *heap);

  /* Samples. The caller is in a slow path. small_sample: the lock of the split heap is held, and given if there is a block:
   * the next one of the class, if that is a sample. shared_give: a block of the heap that nobody owns was freed.
   * large_resizing: is the object a sample? Then large_resized says how that went. site: where the program called. */
  void *(*small_sample)(struct heap *heap, unsigned cls, uintptr_t site);
  void (*shared_give)(void *block, uint32_t entry);
  void (*large_made)(void *object, size_t bytes, uintptr_t site);
  void (*large_freed)(void *object);
  bool (*large_resizing)(void *object);
  void (*large_resized)(void *object, bool is_done);

  /* Advice how long what is freed stays resident, while the option `policy` is on: a large object is made (caller: the
   * address malloc was called from; the result is its site from then on), resized, freed; a slab is opened, closed. is_kept:
   * the pages can stay as they are. The answer is one of policy/keep_policy.h. */
  uint64_t (*advice_large_taken)(uintptr_t caller, size_t bytes);
  void (*advice_large_resized)(uint64_t site, size_t bytes, size_t wanted);
  unsigned (*advice_large_freed)(uint64_t site, size_t bytes, bool is_kept);
  void (*advice_slab_opened)(size_t block_bytes, size_t slab_bytes);
  unsigned (*advice_slab_closed)(size_t block_bytes, size_t slab_bytes);

  /* Large objects by call site, while the option `live` is on. hash: of the site; site: its address, 0: not at hand. */
  void (*site_taken)(uint32_t hash, uintptr_t site, size_t bytes);
  void (*site_freed)(uint32_t hash, size_t bytes);
  void (*site_resized)(uint32_t hash, size_t bytes, size_t wanted);
};
extern const struct observers observers;

/* large_made, large_freed and large_resizing are to be called. */
extern _Atomic bool observers_large_made, observers_large_freed;

static inline bool advice_is_wanted(void) {
  return UNLIKELY(option_value(OPTION_POLICY) != POLICY_OFF) && observers.advice_large_taken != NULL;
}
static inline bool sites_are_counted(void) {
  return UNLIKELY(option_value(OPTION_LIVE) == LIVE_ON) && observers.site_taken != NULL;
}

#endif
