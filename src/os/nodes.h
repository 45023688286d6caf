/* nodes.h: the NUMA nodes that have processors, and on which of them a thread runs.
 *
 * Nodes have numbers from 0 on, without gaps. 0 is the one on which the main thread ran when they were counted. A
 * machine that does not tell, or tells nonsense, has one node. A processor that goes online later counts for any of
 * them. No function allocates, takes a lock or changes errno.
 */
#pragma once

#include "base/words.h"

#define NODES_MAX 8u /* more nodes share numbers */

extern _Atomic uint32_t os_nodes_counted; /* 0: not yet */
static ALWAYS_INLINE bool os_has_nodes(void) {
  return UNLIKELY(atomic_load_explicit(&os_nodes_counted, memory_order_acquire) > 1);
}
static ALWAYS_INLINE unsigned os_nodes(void) {
  return os_has_nodes() ? atomic_load_explicit(&os_nodes_counted, memory_order_relaxed) : 1;
}

/* Counts the nodes, if they are not counted yet; one thread at a time. Reads one file where there is one node. */
void os_nodes_count(void);

/* Returns the node on which the calling thread runs; 0 if there is one node only. */
unsigned os_node_of_thread(void);
static ALWAYS_INLINE unsigned os_node(void) { return os_has_nodes() ? os_node_of_thread() : 0; }

/* Adds the processors that the calling thread may use to those that the threads before it may; returns how many they
 * are, 0 if the system does not tell. One thread at a time. */
unsigned os_cpus_add(void);

/* Returns how many of these belong to a node. */
unsigned os_cpus_of_node(unsigned node);
