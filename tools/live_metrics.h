/* live_metrics.h: the figures of processes as OpenMetrics, which wants all processes of a figure together. */
#pragma once

#include "tools/live_read.h"

/* Keeps a process's figures. context: not used. */
void live_metrics_add(struct live_process *process, void *context);
/* Prints what was kept. Returns 0, or 1 after a complaint: there was no memory for all. */
int live_metrics_print(void);
