/* huge.h: whether to ask for huge pages, by what was seen so far (policy/huge_policy.h). Thread-safe,
 * never waits. */
#ifndef HAK_PAGES_HUGE_H
#define HAK_PAGES_HUGE_H

#include "pages/extent.h"

/* The pool that a superslab should come from, or a large object that is no mapping of its own. Large
 * objects share huge pages: one that is partly used is filled up by the next. */
enum extent_pool huge_pool_for_superslab(void);
enum extent_pool huge_pool_for_large(void);

/* May a mapping of a large object have them? Only once such mappings were seen to be used densely: a
 * huge table with a few entries would become resident whole. */
bool huge_for_mapping(size_t bytes);

/* Touches the first page of a range on huge pages that the caller owns and nobody used yet: how long that
 * takes tells whether the kernel has any at hand. Call it without a lock, but for that of the caller's own heap. */
void huge_probe(char *base);

/* A mapping without huge pages is given up: how much of it was used? */
void huge_judge_mapping(const char *base, size_t bytes);

#endif
