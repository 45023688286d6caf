/* profile.h: heap profiles: what happens to the allocations that are samples, and the file.
 *
 * Which allocations those are is decided by heap/tally.h. A sampled block of a size class comes from a heap of its own,
 * which no thread owns: so its page-map entry matches no key, and its free takes the slow path, whoever frees it. Large
 * objects take the slow path anyway.
 * One lock guards the samples; nothing but memory is asked of the system under it, and no other lock is taken.
 *   P1  a live sampled block of a class is in the samples, unless they were cleared since or had no memory for it
 *   P2  a block leaves the samples before it can be allocated again
 */
#ifndef HAK_PROFILE_PROFILE_H
#define HAK_PROFILE_PROFILE_H

#include "heap/heap.h"
#include "inspect/file.h"
#include "pages/page_map.h"
#include "profile/samples.h"

/* A profile begins, empty, with a sample each interval bytes (1: every allocation). False: no memory. */
bool profile_start(uint64_t interval);
/* Nothing more is sampled. What was sampled stays in the profile, and leaves it when it is freed. */
void profile_stop(void);
bool profile_is_on(void);

bool profile_was_started(void);

/* The stacks as they are (samples_copy_stacks), the interval, and when the profile began. */
bool profile_copy(struct samples *copy, uint64_t *interval, uint64_t *start_ns);

/* The profile as a file for pprof, whole or not at all. While it is written sampling goes on. */
enum os_file_error profile_write(const char *path);
/* Into an open file, from *end on; it comes back as where the profile ends. */
enum os_file_error profile_write_at(int fd, uint64_t *end);

/* Live samples stand for so much; the blocks that are samples; what did not fit; bytes mapped for tables. */
struct profile_stats {
  uint64_t interval, live_bytes, live_objects, samples, dropped_bytes, table_bytes;
};
void profile_stats(struct profile_stats *out);

/* The heap of sampled blocks has this id, 0 if there is none. */
extern _Atomic uint32_t profile_heap_id;
static inline bool profile_has_block(uint32_t entry) {
  uint32_t id = atomic_load_explicit(&profile_heap_id, memory_order_relaxed);
  return id != 0 && entry_heap_id(entry) == id;
}
/* Are there, or may there be, large samples? */
extern _Atomic bool profile_has_large;

/* A sampled block of a class, for a caller in its slow path without a lock; picks: from tally_picks. NULL when memory
 * is out. site: where the program called. */
void *profile_take(struct heap *heap, unsigned cls, uint32_t picks, uintptr_t site);
void profile_give(void *block, uint32_t entry);

/* A large object was allocated, is about to be freed, is about to be resized: then the caller says how that went, if
 * this was a sample. One that was resized is none any more, and may be picked as if it were allocated. */
void profile_large_allocated(struct heap *heap, void *object, size_t bytes, uint32_t picks, uintptr_t site);
void profile_large_freed(void *object);
bool profile_large_resizing(void *object);
void profile_large_resized(void *object, bool is_done);

#endif
