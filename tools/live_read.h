/* live_read.h: the page that a process with HAKMEM_LIVE=1 keeps (live/live_page.h), read from outside.
 *
 * The page is mapped read-only; nothing that comes from it is trusted to be in order.
 */
#ifndef HAK_TOOLS_LIVE_READ_H
#define HAK_TOOLS_LIVE_READ_H

#include "live/live_page.h"

enum { LIVE_SENTENCE = 256, LIVE_COMMAND = 32, LIVE_PLACE = 96 };

/* What a problem means to a program: the process ended, or it cannot be looked at. */
enum live_problem { LIVE_ENDED = 1, LIVE_UNREADABLE = 2 };

struct live_process {
  long pid;
  int folder; /* /proc/PID: stays that of this process, whoever gets its number */
  const char *page;
  size_t page_bytes;
  struct live_head head; /* as it was when it was opened: checked */
  char *names;           /* of the columns, up to slot 0 */
  uint64_t *words;       /* the last snapshot that was taken whole */
  uint64_t *spare;       /* as long */
  enum live_problem problem;
  char sentence[LIVE_SENTENCE]; /* of the problem */
};

/* False: sentence and problem say why; live_close is not needed then. */
bool live_open(struct live_process *process, long pid);
void live_close(struct live_process *process);

/* As ps shows it; 'Z': it has ended. */
char live_state(const struct live_process *process);

/* Wakes the thread that looks what is wanted. False: it did not sleep, or is not there. */
bool live_wake(const struct live_process *process);

/* Asks for a fresh snapshot and waits for it, at most wait_ms; not at all if the process has nobody who would write
 * one: then the last one is as good as it gets. */
void live_ask(struct live_process *process, unsigned wait_ms);

/* Takes the latest whole snapshot. False: sentence and problem say why. */
bool live_take(struct live_process *process);
double live_age_s(const struct live_process *process);

/* A table of the snapshot, whose rows are of `columns` words. */
struct live_rows {
  const struct live_table *table; /* NULL: the process's version has none of that name */
  const uint64_t *words;
  uint32_t count, columns;
};
struct live_rows live_table(const struct live_process *process, const char *name);
const char *live_column_name(const struct live_process *process, const struct live_table *table, uint32_t column);
/* 0 if there is no such row or column. */
uint64_t live_value(const struct live_process *process, const struct live_rows *rows, uint32_t row, const char *column);
uint64_t live_total(const struct live_process *process, const char *column);

/* What the kernel knows about the process. */
struct live_kernel {
  uint64_t resident_bytes;
  unsigned threads;
  char command[LIVE_COMMAND];
};
void live_kernel(const struct live_process *process, struct live_kernel *out);
/* The name of one of its threads, "-" if it has none of that number. */
void live_thread_name(const struct live_process *process, uint64_t thread_id, char name[LIVE_COMMAND]);
/* "libfoo.so+0x1234": the offset is from where the file was loaded, as addr2line takes it. "0x1234": in no file. */
void live_place(const struct live_process *process, uint64_t address, char place[LIVE_PLACE]);

/* Calls `each` for every process that can be looked at, after waiting for a fresh snapshot of it, at most wait_ms.
 * Returns how many. */
size_t live_list(unsigned wait_ms, void (*each)(struct live_process *process, void *context), void *context);

#endif
