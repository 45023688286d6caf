/* pressure.h: the descriptor by which the background thread learns of memory pressure. Only that thread uses it, and
 * the child of a fork before it has one. */
#pragma once

#include "base/words.h"

/* Tells whether the system became short of memory since the last call. The first call opens the descriptor, which takes
 * milliseconds. */
bool pressure_came(void);
/* In the child: a report reaches only one of the processes that share a descriptor. */
void pressure_in_child(void);
