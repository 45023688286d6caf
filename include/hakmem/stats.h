/* stats.h: what the allocator counts, and the structs that hakmem.h fills.
 *
 * The rows below are the only table: the structs' fields, the JSON and OpenMetrics reports, malloc_info, docs/stats.md
 * and docs/stats.schema.json follow from it. All numbers are of the whole process and 64 bits wide.
 *   ROW(group, name, kind, unit, sentence)
 *   GAUGE    a state: may fall
 *   COUNTER  events so far: never falls
 * Rows of the group PART add up to mapped_bytes, to within moving_bytes.
 */
#ifndef HAKMEM_STATS_H
#define HAKMEM_STATS_H

#include <stdint.h>

/* clang-format off */
#define HAK_STATS_ROWS(ROW) \
  ROW(PART, live_bytes, GAUGE, BYTES, "Live blocks, rounded up to class sizes, and live large objects.") \
  ROW(PART, bin_bytes, GAUGE, BYTES, "Blocks ready in the bins (thread caches) of the heaps.") \
  ROW(PART, in_flight_bytes, GAUGE, BYTES, "Remote frees on the way to the pools that own the blocks.") \
  ROW(PART, slab_free_bytes, GAUGE, BYTES, "Free blocks in slabs, and slab tails that no block fits into.") \
  ROW(PART, extent_free_bytes, GAUGE, BYTES, "Free extents that were used and not given back since.") \
  ROW(PART, extent_purged_bytes, GAUGE, BYTES, "Free extents that were given back or never used.") \
  ROW(PART, extent_unused_bytes, GAUGE, BYTES, "Accessible ends of the arenas that were never used.") \
  ROW(PART, large_cached_bytes, GAUGE, BYTES, "Freed large ranges in the BigCache and in the threads' stashes.") \
  ROW(PART, metadata_bytes, GAUGE, BYTES, "hakmem's own tables, as mapped, and pages that guarded objects left.") \
  ROW(PART, profile_table_bytes, GAUGE, BYTES, "Tables of the heap profile, as mapped.") \
  ROW(PART, guarded_bytes, GAUGE, BYTES, "Accessible pages of guarded blocks (HAKMEM_GUARD).") \
  ROW(MEMORY, mapped_bytes, GAUGE, BYTES, \
      "All accessible memory: committed_bytes, large_mapping_bytes, metadata_bytes, profile_table_bytes, " \
      "guarded_bytes.") \
  ROW(MEMORY, moving_bytes, GAUGE, BYTES, \
      "Upper bound on the accounting error of this snapshot: bytes in transfer while it was taken.") \
  ROW(MEMORY, committed_bytes, GAUGE, BYTES, "The accessible part of the arenas.") \
  ROW(MEMORY, large_mapping_bytes, GAUGE, BYTES, "Large objects and cached ranges that have mappings of their own.") \
  ROW(MEMORY, reserved_bytes, GAUGE, BYTES, "Address space of all arenas.") \
  ROW(MEMORY, heap_bytes, GAUGE, BYTES, "Slabs in use and live large objects.") \
  ROW(MEMORY, heap_peak_bytes, GAUGE, BYTES, "The highest heap_bytes so far.") \
  ROW(MEMORY, large_bytes, GAUGE, BYTES, "Live large objects (part of live_bytes).") \
  ROW(MEMORY, limit_bytes, GAUGE, BYTES, "The hard limit in force; 0: none.") \
  ROW(MEMORY, bin_blocks, GAUGE, BLOCKS, "Blocks ready in bins.") \
  ROW(MEMORY, large_count, GAUGE, OBJECTS, "Live large objects.") \
  ROW(MEMORY, large_mapping_count, GAUGE, MAPPINGS, \
      "Large objects and cached ranges that have mappings of their own.") \
  ROW(HEAP, heap_count, GAUGE, HEAPS, \
      "Heaps made so far: one for each thread at one time, and one for each hak_heap that it uses.") \
  ROW(HEAP, heap_parked_count, GAUGE, HEAPS, "Empty heaps of ended threads, ready for new threads.") \
  ROW(HEAP, heaps_adopted, COUNTER, TIMES, "A starting thread took over the heap of an ended one.") \
  ROW(HEAP, heaps_swept, COUNTER, TIMES, "A slow path emptied the heap of an ended thread.") \
  ROW(REFILL, refills, COUNTER, TIMES, "malloc found a bin empty and filled it.") \
  ROW(REFILL, refilled_blocks, COUNTER, BLOCKS, "Blocks that slabs gave to bins.") \
  ROW(REFILL, refills_from_inbox, COUNTER, TIMES, "Remote frees filled the bin.") \
  ROW(REFILL, refills_from_slab, COUNTER, TIMES, "Open slabs of the pool filled the bin.") \
  ROW(REFILL, slabs_opened, COUNTER, TIMES, "No slab of the pool had a free block, so an extent became one.") \
  ROW(REFILL, slabs_closed, COUNTER, TIMES, "An empty slab became a free extent.") \
  ROW(REFILL, arena_commits, COUNTER, TIMES, "No free extent served, so more of an arena was made accessible.") \
  ROW(REFILL, arenas_reserved, COUNTER, TIMES, "No arena served, so address space was reserved.") \
  ROW(REFILL, bin_growths, COUNTER, TIMES, "A bin's array was doubled.") \
  ROW(REFILL, bin_shrinks, COUNTER, TIMES, "A bin's array was made shorter.") \
  ROW(FREE, bin_overflows, COUNTER, TIMES, "free found the bin full, or not there yet.") \
  ROW(FREE, flushes, COUNTER, TIMES, "A bin returned blocks to slabs or, in envelopes, to other pools.") \
  ROW(FREE, flushed_blocks, COUNTER, BLOCKS, "Blocks that bins returned so.") \
  ROW(FREE, remote_frees, COUNTER, BLOCKS, \
      "Blocks of other pools that found no room in bins, and were sent to their owners in envelopes (batches).") \
  ROW(FREE, envelopes_sent, COUNTER, TIMES, "An envelope (a batch of remote frees) was sent.") \
  ROW(FREE, inbox_drains, COUNTER, TIMES, "A pool took the remote frees out of its inbox.") \
  ROW(FREE, inbox_blocks, COUNTER, BLOCKS, "Blocks taken out of inboxes.") \
  ROW(FREE, frees_by_hand, COUNTER, BLOCKS, \
      "Remote frees that went straight into the owner's slab: no memory for an envelope, or too many owners.") \
  ROW(FREE, large_frees, COUNTER, OBJECTS, "Large objects freed.") \
  ROW(FREE, foreign_frees, COUNTER, TIMES, "Frees of pointers that were not hakmem's.") \
  ROW(LARGE, large_allocations, COUNTER, OBJECTS, "Large objects made.") \
  ROW(LARGE, stash_hits, COUNTER, TIMES, "A thread got back a range that it had freed (part of large_allocations).") \
  ROW(LARGE, cache_puts, COUNTER, TIMES, "A freed range went into the BigCache.") \
  ROW(LARGE, cache_hits, COUNTER, TIMES, "A large object got a range of the BigCache.") \
  ROW(LARGE, cache_hits_of_site, COUNTER, TIMES, "The same call site had freed that range (part of cache_hits).") \
  ROW(LARGE, cache_misses, COUNTER, TIMES, "The BigCache had no range that fits.") \
  ROW(LARGE, cache_evictions, COUNTER, TIMES, "The BigCache gave up a range.") \
  ROW(COUNTED, mallocs, COUNTER, BLOCKS, \
      "Blocks allocated while they were counted; large objects are in large_allocations.") \
  ROW(COUNTED, frees, COUNTER, BLOCKS, "Blocks freed while they were counted; large objects are in large_frees.") \
  ROW(COUNTED, profile_samples, GAUGE, BLOCKS, "Live blocks and large objects that are samples of the heap profile.") \
  ROW(COUNTED, profile_live_bytes, GAUGE, BYTES, "Live bytes that these samples stand for.") \
  ROW(COUNTED, profile_dropped_bytes, COUNTER, BYTES, "Bytes of samples that were dropped for lack of memory.") \
  ROW(COUNTED, guarded_blocks, GAUGE, BLOCKS, "Live blocks between pages without access (HAKMEM_GUARD).") \
  ROW(COUNTED, guarded_allocations, COUNTER, BLOCKS, "Blocks that were allocated so.") \
  ROW(COUNTED, guarded_refused, COUNTER, BLOCKS, "Blocks that were to be, but no slot or no memory was free.") \
  ROW(EARLY, slow_calls_filled, COUNTER, TIMES, \
      "A slow malloc found a block ready in a bin: malloc(0), an adopted heap, the first blocks of a class.") \
  ROW(EARLY, spare_calls, COUNTER, TIMES, \
      "malloc got spare memory: in a signal handler that had interrupted a slow path, or during a fork.") \
  ROW(EARLY, frees_deferred, COUNTER, BLOCKS, "Blocks freed in such a call; a later slow path returned them.") \
  ROW(EARLY, memory_retries, COUNTER, TIMES, \
      "There was no memory, so free memory was given back and the request tried again.") \
  ROW(EARLY, limit_callbacks, COUNTER, TIMES, "The program's limit callback was called.") \
  ROW(EARLY, memory_refusals, COUNTER, TIMES, "malloc returned NULL with ENOMEM.") \
  ROW(PURGE, reclaim_rounds, COUNTER, TIMES, "Reclaim rounds: searches for memory to give back.") \
  ROW(PURGE, purges, COUNTER, TIMES, "A range of pages was given back (decay or trim).") \
  ROW(PURGE, purged_bytes, COUNTER, BYTES, "Bytes of these ranges.") \
  ROW(PURGE, purges_refused, COUNTER, TIMES, "A range stayed: the option purge is off, or the system refused.") \
  ROW(PURGE, hole_batches, COUNTER, TIMES, "A batch of free pages inside slabs was given back.") \
  ROW(PURGE, trims, COUNTER, TIMES, "malloc_trim or hak_trim was called.") \
  ROW(PURGE, huge_collapses, COUNTER, TIMES, "2 MiB of dense memory were moved to a huge page.") \
  ROW(SYSTEM, calls, COUNTER, CALLS, "System calls that manage memory or wait, of all kinds.") \
  ROW(SYSTEM, calls_map, COUNTER, CALLS, "mmap.") \
  ROW(SYSTEM, calls_unmap, COUNTER, CALLS, "munmap.") \
  ROW(SYSTEM, calls_protect, COUNTER, CALLS, "mprotect: memory of an arena was made accessible.") \
  ROW(SYSTEM, calls_advise, COUNTER, CALLS, "madvise: memory was given back, or huge pages asked for.") \
  ROW(SYSTEM, calls_remap, COUNTER, CALLS, "mremap: a mapping grew.") \
  ROW(SYSTEM, calls_futex, COUNTER, CALLS, "futex: a thread waited for a lock, or woke another.") \
  ROW(SYSTEM, calls_other, COUNTER, CALLS, "All other system calls.") \
  ROW(POLICY, policy_arms, GAUGE, ARMS, \
      "Call sites by size, and block sizes, that the policy engine decides about separately.") \
  ROW(POLICY, policy_matches, COUNTER, TIMES, "Epochs that the strategies have played, those from a file included.") \
  ROW(POLICY, policy_switches, COUNTER, TIMES, "Another strategy took the lead.") \
  ROW(POLICY, policy_cost_ns, GAUGE, NS, "Modelled cost of freed memory: faults, calls, rent while idle.") \
  ROW(POLICY, policy_fixed_ns, GAUGE, NS, "The same cost if the best single strategy had acted everywhere.") \
  ROW(POLICY, policy_best_ns, GAUGE, NS, "The same cost if the best strategy of each entry had acted there.")

/* As the kernel sees the process. */
#define HAK_PROCESS_STATS_ROWS(ROW) \
  ROW(PROCESS, rss_bytes, GAUGE, BYTES, "Resident memory of the whole process.") \
  ROW(PROCESS, rss_peak_bytes, GAUGE, BYTES, "The highest rss_bytes so far.") \
  ROW(PROCESS, lazy_free_bytes, GAUGE, BYTES, \
      "Part of rss_bytes that the kernel may take at any time (HAKMEM_PURGE=free).") \
  ROW(PROCESS, huge_page_bytes, GAUGE, BYTES, "Part of rss_bytes on huge pages.") \
  ROW(PROCESS, swap_bytes, GAUGE, BYTES, "Swapped out.") \
  ROW(PROCESS, mapping_count, GAUGE, MAPPINGS, "Mappings of the process; the kernel allows 65,530.") \
  ROW(PROCESS, faults_minor, COUNTER, TIMES, "Page faults served without a disk.") \
  ROW(PROCESS, faults_major, COUNTER, TIMES, "Page faults that waited for a disk.")

/* Of one size class. slab_bytes - taken_bytes is its fragmentation. */
#define HAK_CLASS_STATS_ROWS(ROW) \
  ROW(CLASS, block_bytes, GAUGE, BYTES, "Size of the class's blocks.") \
  ROW(CLASS, slab_count, GAUGE, SLABS, "Slabs of the class.") \
  ROW(CLASS, slab_bytes, GAUGE, BYTES, "Bytes of these slabs.") \
  ROW(CLASS, taken_bytes, GAUGE, BYTES, "Blocks that slabs have given out: live, in bins, in flight.") \
  ROW(CLASS, bin_bytes, GAUGE, BYTES, "Part of taken_bytes: blocks in bins.") \
  ROW(CLASS, mallocs, COUNTER, BLOCKS, "Blocks allocated while they were counted.") \
  ROW(CLASS, frees, COUNTER, BLOCKS, "Blocks freed while they were counted.")
/* clang-format on */

#define HAK_STATS_FIELD(group, name, kind, unit, sentence) uint64_t name;

struct hak_stats {
  HAK_STATS_ROWS(HAK_STATS_FIELD)
};
struct hak_process_stats {
  HAK_PROCESS_STATS_ROWS(HAK_STATS_FIELD)
};
struct hak_class_stats {
  HAK_CLASS_STATS_ROWS(HAK_STATS_FIELD)
};

/* Size classes with slabs, at most. */
#define HAK_STATS_CLASSES 108

#endif
