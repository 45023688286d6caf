/* live_read.h: reads the page that a process with HAKMEM_LIVE=1 keeps (live/live_page.h).
 *
 * The page is mapped read-only. Everything that comes from it is validated.
 */
#pragma once

#include "live/live_page.h"

enum { LIVE_SENTENCE = 256, LIVE_COMMAND = 32, LIVE_PLACE = 96 };

/* The kind of a problem: the process has ended, or it cannot be read. */
enum live_problem { LIVE_ENDED = 1, LIVE_UNREADABLE = 2 };

struct live_process {
  long pid;
  int folder; /* /proc/PID: stays that of this process, even if its id is reused */
  const char *page;
  size_t page_bytes;
  struct live_head head;   /* a checked copy from the time of opening */
  char *names;             /* of the columns, up to slot 0 */
  uint64_t *words;         /* the last snapshot that was taken whole */
  uint64_t *spare;         /* as long; after live_take the one before, zeros if there is none */
  uint64_t resident_bytes; /* this and the next two are of the kernel, from when that was taken */
  unsigned threads;
  char command[LIVE_COMMAND];
  enum live_problem problem;
  char sentence[LIVE_SENTENCE]; /* of the problem */
};

/* Note a problem and its sentence, in which the first %ld is the process's id. Return false. */
__attribute__((format(printf, 3, 4))) bool live_wrong(struct live_process *process, enum live_problem problem,
                                                      const char *format, ...);
#define live_unreadable(process, format, ...)                                                                          \
  live_wrong(process, LIVE_UNREADABLE, format, (process)->pid, ##__VA_ARGS__)
#define live_ended(process) live_wrong(process, LIVE_ENDED, "process %ld has ended", (process)->pid)

/* Whether processes can be seen at all, and what is said where they cannot, in a chroot for example. */
bool live_is_possible(void);
#define LIVE_IMPOSSIBLE "no process can be looked at: /proc is not mounted here"

/* Opens a process's page. False: sentence and problem say why, and nothing stays open; to close it again does
 * no harm. */
bool live_open(struct live_process *process, long pid);
void live_close(struct live_process *process);

/* As ps shows it; 'Z': it has ended. */
char live_state(const struct live_process *process);

/* Wakes the process's background thread. False: it did not sleep, or does not exist. */
bool live_wake(const struct live_process *process);

/* Asks for a fresh snapshot and waits for it, at most wait_ms (0: does not ask). If the process has no thread to write
 * one, it does not wait. Then takes the latest whole snapshot. False: sentence and problem say why. */
bool live_take(struct live_process *process, unsigned wait_ms);
uint64_t live_time_ns(const struct live_process *process);
double live_age_s(const struct live_process *process);

/* A table of the snapshot, whose rows are of `columns` words. */
struct live_rows {
  const struct live_table *table; /* NULL: the process's version has no such table */
  const uint64_t *words;
  uint32_t count, columns;
};
struct live_rows live_table(const struct live_process *process, const char *name);
const char *live_column_name(const struct live_process *process, const struct live_table *table, uint32_t column);
/* 0 if there is no such row or column. */
uint64_t live_value(const struct live_process *process, const struct live_rows *rows, uint32_t row, const char *column);
uint64_t live_total(const struct live_process *process, const char *column);

/* The name of one of its threads, "" if it has none of that number. */
void live_thread_name(const struct live_process *process, uint64_t thread_id, char name[LIVE_COMMAND]);
/* Writes "libfoo.so+0x1234", with the offset that addr2line takes; "0x1234" for an address in no file. */
void live_place(const struct live_process *process, uint64_t address, char place[LIVE_PLACE]);

/* Calls `each` for every process that can be read, after waiting for a fresh snapshot for at most wait_ms. */
void live_list(unsigned wait_ms, void (*each)(struct live_process *process, void *context), void *context);

/* --- memfds that a process keeps for others; `folder`: a descriptor of /proc/PID --- */

enum { LIVE_FIND_NONE = -1, LIVE_FIND_DENIED = -2 };

/* Opens the memfd of this name with these flags and returns a descriptor; or one of the values above: the process has
 * none open, or access is denied. */
int live_find_file(int folder, const char *name, int flags);

/* Tells whether no access to a mapping of the file kills this program by a signal: nobody can truncate the file, and it
 * is not of huge pages, of which the system may have none left. */
bool live_is_safe(int fd);
