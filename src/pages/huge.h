/* huge.h: whether to ask for huge pages, by the experience so far (policy/huge_policy.h). All functions are thread-safe
 * and never wait. */
#pragma once

#include "pages/extent.h"

/* Returns the bank for a slab, or for a large object that is an extent. Large objects share huge pages: the next
 * object fills up a partly used one. */
enum extent_bank huge_bank(bool is_large);

/* Tells whether an extent for a large object that has no pages yet may be on huge pages. It may if others, on small
 * pages, were seen densely used since; each such sight is good for some bytes. */
bool huge_is_earned(size_t bytes);
/* Call when a large object gets an extent on small pages, without pages yet. What is resident of it later is evidence
 * for huge_is_earned. It may become anything meanwhile. */
void huge_watch(const char *base, size_t bytes);

/* Tells whether fresh slabs are to be on a huge page at once; see huge_wanted_for_slabs. */
bool huge_for_slabs(size_t slab_bytes, size_t dense_bytes);
/* Makes a huge page resident, and measures the time like huge_probe. The caller owns it. */
void huge_fill(char *base);

/* Tells whether the mapping of a large object may have huge pages. It may once such mappings were seen densely used,
 * because a long, sparse table would become wholly resident. */
bool huge_for_mapping(size_t bytes);

/* Touches the first huge page that begins in an unused range on huge pages, and measures the time. It shows whether the
 * kernel has huge pages at hand. The caller owns the range and holds no lock but that of its pool. */
void huge_probe(char *base, size_t bytes);

/* Tells whether at least 7/8 of a range is resident, by samples. False where the system may not be asked. */
bool huge_is_dense(const char *base, size_t bytes);

/* Call when the object in a mapping without huge pages is freed: notes how much of it was used. It takes longer than
 * the mapping's reuse, so once is enough for objects that used the same pages one after another. */
void huge_note_mapping(const char *base, size_t bytes);
