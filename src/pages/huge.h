/* huge.h: whether to ask for huge pages, by the experience so far (policy/huge_policy.h). All functions are thread-safe
 * and never wait. */
#ifndef HAK_PAGES_HUGE_H
#define HAK_PAGES_HUGE_H

#include "pages/extent.h"

/* Return the bank for a superslab, and for a large object that is an extent. Large objects share huge pages: the next
 * object fills up a partly used one. */
enum extent_bank huge_bank_for_superslab(void);
enum extent_bank huge_bank_for_large(void);

/* Tells whether the mapping of a large object may have huge pages. It may once such mappings were seen densely used,
 * because a long, sparse table would become wholly resident. */
bool huge_for_mapping(size_t bytes);

/* Touches the first page of an unused range on huge pages and measures the time. It shows whether the kernel has huge
 * pages at hand. The caller owns the range and holds no lock but that of its own heap. */
void huge_probe(char *base);

/* Call when the object in a mapping without huge pages is freed: notes how much of it was used. It takes longer than
 * the mapping's reuse, so once is enough for objects that used the same pages one after another. */
void huge_note_mapping(const char *base, size_t bytes);

#endif
