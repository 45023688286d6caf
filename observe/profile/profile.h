/* profile.h: the heap profiler: it records sampled allocations and writes the file.
 *
 * count/tally.h selects the samples. A sampled block of a size class comes from a pool without heaps. So its page-map
 * entry matches no heap's key, and its free takes the slow path on any thread. Large objects always take the slow
 * path.
 *
 * One lock guards the samples. Under it no other lock is taken, and the only system calls are those for memory.
 *   P1  a live sampled block is in the samples, unless they were cleared since or had no memory for it, or the profile
 *       was stopped before it came
 *   P2  a block leaves the samples before it can be allocated again
 */
#pragma once

#include "inspect/file.h"
#include "profile/pprof.h"

struct heap;

/* Begins an empty profile with this sampling interval in bytes (1: every allocation). False: no memory. The heaps' keys
 * tell all threads. The calling thread's heap is not split at once, because a signal handler may have interrupted its
 * malloc. */
bool profile_start(uint64_t interval);
/* Ends the sampling. Samples stay in the profile until their blocks are freed. */
void profile_stop(void);
bool profile_is_on(void);

bool profile_was_started(void);

/* Copies the stacks (samples_copy_stacks), and tells about the profile. */
bool profile_copy(struct samples *copy, struct pprof_about *about);

/* Adds the profile, as a file for pprof, to a file that is begun. Sampling continues meanwhile. */
void profile_add_to(struct os_file_part *file);
/* Writes it as the file at path, whole or not at all. */
enum os_file_error profile_write(const char *path);

/* What the options ask for, at program start and end (heap_profile.c). */
void heap_profile_begin(void);
void heap_profile_end(void);

/* Sets the rows profile_*. */
struct hak_stats;
void profile_stats(struct hak_stats *out);

/* Adds a block that another observer has given for a pick. */
void profile_add(struct heap *heap, void *block, size_t bytes, uint32_t picks, uintptr_t site);

/* For the core's table (base/observers.h says when they are called). */
/* picks: of tally_picks, not 0. */
void *profile_small_sample(struct heap *heap, unsigned cls, uint32_t picks, uintptr_t site, bool *is_held);
void profile_shared_give(void *block, uint32_t entry);
void profile_large_made(void *object, size_t bytes, uintptr_t site);
void profile_forget(void *object);
bool profile_large_resizing(void *object);
void profile_large_resized(void *object, bool is_done);
