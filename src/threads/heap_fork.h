/* heap_fork.h: what becomes of the heaps at a fork: the child has one thread, and keeps its heaps only. */
#pragma once

/* Call before a fork, and after it in the parent, while the gate is shut (heap/slow_path.h). */
void heaps_before_fork(void);
void heaps_in_parent(void);
/* Call in the child of a fork. Memory that other threads change outside slow paths was copied page by page while they
 * ran. So their bins and outboxes may be inconsistent, and are dropped. */
void heaps_in_child(void);
