/* collapse.h: dense memory on small pages moves to huge pages, which need fewer entries of the TLB.
 *
 * A row (2 MiB) qualifies if slabs use all of its units, and all of its pages were resident at two looks. So the move
 * makes nothing resident. Large objects do not take part: the kernel shows zeros that were only read, of calloc, as
 * resident. While processes live that may share pages, what was there at the last fork stays where it is, because a
 * move would unshare pages (pages/fresh.h). The moves take a bounded share of the time (policy/huge_policy.h). No file
 * is opened: a program with one thread would see the number. */
#pragma once

#include "base/words.h"

/* Call on a thread of the program before the first call of collapse_some: reads whether the administrator forbids huge
 * pages. */
void collapse_prepare(void);

/* False where no move will be tried. */
bool collapse_is_possible(void);

/* Does a part of what is due. One thread at a time, which holds the lock of the reclaim round: so no trim unmaps an
 * arena meanwhile. may_go_on, if not NULL, is asked before each move. Returns true if there may be more to do soon,
 * or, within a minute of a fork, when its child has ended. */
bool collapse_some(bool (*may_go_on)(void));

/* Call after pages of a range were given back: the rows are not on huge pages any more, and whole rows are
 * fresh. Any thread. */
void collapse_forget(const void *base, size_t bytes);
