/* record_file.c: writes the chunks of the trace, up to the limit. */
#include "record.h"

#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { FD_FLOOR = 512, END_BYTES = sizeof(struct trace_chunk) + sizeof(struct trace_end) };
enum { YIELDS = 100, NAP_NS = 500000, PATIENCE = 20000, PATIENCE_HURRIED = 500 }; /* naps: 10 s, 0.2 s */

_Atomic uint64_t record_order = 1;
static _Atomic uint64_t lost; /* calls of this process that were not recorded */

/* Written under the lock.
 *   W1  the file is whole chunks up to `offset`; what follows is the end mark, or is not there
 *   W2  fd is the file `device`, `inode`, or the program has closed it */
static struct {
  pthread_mutex_t lock;
  int fd;
  bool is_open, has_end;
  uint32_t end_reason;
  uint64_t end_code;
  uint64_t offset, limit, events;
  dev_t device;
  ino_t inode;
  char path[4096];
  struct trace_crc crc;
} file = {.lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1};

uint64_t record_clock_us(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000;
}

void record_lose(uint64_t events) { atomic_fetch_add(&lost, events); }

void record_say(const char *first, const char *second, uint64_t number, const char *third) {
  char text[4096 + 256], digits[24];
  size_t used = 0, at = sizeof digits - 1;
  digits[at] = 0;
  do
    digits[--at] = (char)('0' + number % 10);
  while (number /= 10);
  const char *parts[] = {"hak record: ", first, second, digits + at, third, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    for (const char *c = parts[i]; *c && used < sizeof text; c++)
      text[used++] = *c;
  (void)!syscall(SYS_write, 2, text, used);
}

bool record_wait(unsigned tries) {
  struct timespec moment = {0, tries < YIELDS ? 0 : NAP_NS};
  syscall(SYS_nanosleep, &moment, NULL);
  return tries < (record_self.is_hurried ? PATIENCE_HURRIED : PATIENCE);
}

static bool lock_file(void) {
  for (unsigned tries = 0; pthread_mutex_trylock(&file.lock); tries++)
    if (!record_wait(tries))
      return false;
  return true;
}

static bool is_ours(int fd) {
  struct stat found;
  return fstat(fd, &found) == 0 && found.st_dev == file.device && found.st_ino == file.inode;
}

/* Above the numbers that programs count on; closed at exec. */
static int open_high(const char *path, int flags) {
  int fd = (int)syscall(SYS_openat, AT_FDCWD, path, flags | O_CLOEXEC, 0600);
  int high = fd < 0 ? -1 : fcntl(fd, F_DUPFD_CLOEXEC, FD_FLOOR);
  if (high < 0)
    return fd;
  syscall(SYS_close, fd);
  return high;
}

/* 0, or why not. Nothing but whole content is left behind. */
static int write_at(const void *data, size_t bytes, uint64_t offset) {
  if (!is_ours(file.fd)) { /* the program closes what it does not know */
    file.fd = open_high(file.path, O_WRONLY);
    if (file.fd < 0 || !is_ours(file.fd))
      return file.fd < 0 ? errno : ESTALE;
  }
  for (size_t done = 0; done < bytes;) {
    long wrote = syscall(SYS_pwrite64, file.fd, (const char *)data + done, bytes - done, offset + done);
    if (wrote < 0 && errno == EINTR)
      continue;
    if (wrote <= 0) {
      int error = wrote < 0 ? errno : EIO;
      (void)!syscall(SYS_ftruncate, file.fd, offset);
      return error;
    }
    done += (size_t)wrote;
  }
  return 0;
}

static void finish(struct trace_chunk *chunk) {
  chunk->mark = TRACE_MARK;
  chunk->version = TRACE_VERSION;
  size_t skipped = offsetof(struct trace_chunk, kind);
  chunk->crc =
      trace_crc_of(&file.crc, (const char *)chunk + skipped, sizeof *chunk - skipped + (size_t)chunk->payload_bytes);
}

static int write_end(void) {
  struct {
    struct trace_chunk chunk;
    struct trace_end end;
  } mark = {.chunk = {.kind = TRACE_END,
                      .payload_bytes = sizeof(struct trace_end),
                      .items = file.end_reason,
                      .order = atomic_load(&record_order) - 1,
                      .time_us = record_clock_us()},
            .end = {.events = file.events, .lost = atomic_load(&lost), .detail = file.end_code}};
  _Static_assert(sizeof mark == END_BYTES, "no padding");
  finish(&mark.chunk);
  return write_at(&mark, sizeof mark, file.offset);
}

/* The program goes on, the recording does not. */
static void stop(uint32_t reason, uint64_t code) {
  file.end_reason = reason;
  file.end_code = code;
  file.has_end = true;
  file.is_open = false;
  write_end();
  atomic_store(record_mode, RECORD_OFF);
  if (reason == TRACE_END_LIMIT)
    record_say(file.path, " reached its limit of ", code >> 20, " MB: recording stops, the program goes on");
  else
    record_say(file.path, " cannot be written, error ", code, ": recording stops, the program goes on");
}

void record_file_chunk(struct trace_chunk *chunk) {
  finish(chunk);
  if (!lock_file()) {
    record_lose(chunk->items);
    return;
  }
  if (file.is_open) {
    size_t bytes = sizeof *chunk + chunk->payload_bytes;
    int error = 0;
    if (file.offset + bytes + END_BYTES > file.limit)
      stop(TRACE_END_LIMIT, file.limit);
    else if ((error = write_at(chunk, bytes, file.offset)) != 0)
      stop(TRACE_END_WRITE, (uint64_t)error);
    else {
      file.offset += bytes;
      if (chunk->kind == TRACE_EVENTS)
        file.events += chunk->items;
      if (file.has_end)
        write_end();
    }
  }
  pthread_mutex_unlock(&file.lock);
}

void record_file_end(uint32_t reason, uint64_t code) {
  if (!lock_file())
    return;
  if (file.is_open) {
    file.has_end = true;
    file.end_reason = reason;
    file.end_code = code;
    write_end();
  }
  pthread_mutex_unlock(&file.lock);
}

void record_file_resume(void) {
  if (!lock_file())
    return;
  if (file.is_open && file.has_end && is_ours(file.fd)) {
    file.has_end = false;
    (void)!syscall(SYS_ftruncate, file.fd, file.offset);
  }
  pthread_mutex_unlock(&file.lock);
}

void record_file_forget(void) {
  pthread_mutex_init(&file.lock, NULL);
  if (file.fd >= 0 && is_ours(file.fd))
    syscall(SYS_close, file.fd);
  file.fd = -1;
  file.is_open = file.has_end = false;
  file.events = 0;
  atomic_store(&lost, 0);
}

/* A trace of this run, from before an exec. */
static bool is_continued(uint64_t run) {
  struct {
    struct trace_chunk chunk;
    struct trace_start start;
  } head;
  return syscall(SYS_pread64, file.fd, &head, sizeof head, 0) == (long)sizeof head && head.chunk.mark == TRACE_MARK &&
         head.chunk.kind == TRACE_START && head.start.run == run;
}

bool record_file_open(const char *path, uint64_t limit, uint64_t run, const char *program) {
  size_t length = strlen(path);
  struct stat found;
  struct rlimit largest;
  if (length >= sizeof file.path)
    return false;
  memcpy(file.path, path, length + 1);
  trace_crc_prepare(&file.crc);
  file.fd = open_high(path, O_RDWR | O_CREAT);
  if (file.fd < 0 || fstat(file.fd, &found)) {
    record_say(path, " cannot be opened, error ", (uint64_t)errno, ": nothing is recorded");
    return false;
  }
  file.device = found.st_dev;
  file.inode = found.st_ino;
  file.limit = limit;
  /* A write beyond the process's own limit would be a signal to it. */
  if (getrlimit(RLIMIT_FSIZE, &largest) == 0 && largest.rlim_cur < file.limit)
    file.limit = largest.rlim_cur;
  if (is_continued(run))
    file.offset = (uint64_t)found.st_size;
  else {
    file.offset = 0;
    (void)!syscall(SYS_ftruncate, file.fd, 0);
  }
  file.is_open = true;

  struct {
    struct trace_chunk chunk;
    struct trace_start start;
  } head = {.chunk = {.kind = TRACE_START, .payload_bytes = sizeof(struct trace_start), .time_us = record_clock_us()},
            .start = {.run = run,
                      .unix_s = (uint64_t)time(NULL),
                      .pid = (uint32_t)getpid(),
                      .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE)}};
  _Static_assert(sizeof head == sizeof head.chunk + sizeof head.start, "no padding");
  const char *slash = strrchr(program, '/');
  program = slash ? slash + 1 : program;
  memcpy(head.start.program, program, strnlen(program, TRACE_NAME_BYTES - 1));
  record_file_chunk(&head.chunk);
  return file.is_open;
}
