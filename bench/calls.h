/* calls.h: how many system calls a program makes, counted by the kernel at its tracepoint raw_syscalls:sys_enter, which
 * makes each a little slower. Where the kernel or our rights do not permit it there is no counter. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

/* From when: this thread and all threads and processes that it starts later, or the next program that one of those
 * executes. */
enum calls_from { CALLS_FROM_HERE, CALLS_FROM_EXEC };

/* A descriptor that exec closes; -1: not possible here, and *why says so in a few words. */
int calls_open(enum calls_from from, const char **why);

/* The count so far; false if `fd` is -1 or tells none. Uses one system call, which is counted. */
bool calls_read(int fd, uint64_t *count);
