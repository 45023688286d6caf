/* fuzz.h: what libFuzzer's targets share: the input as a row of numbers, files in memory, files that the core finds
 * instead of the kernel's.
 *
 * A target ends by a signal when a CHECK fails: then libFuzzer keeps the input. An input that may not be read beyond
 * its end lies at the end of a heap block, so AddressSanitizer sees one byte too far.
 */
#pragma once

#define TEST_FAILED() abort()

#include "../check.h"

#include <stdbool.h>
#include <sys/mman.h>
#include <sys/syscall.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

struct fuzz_input {
  const uint8_t *at, *end;
};

/* Numbers behind the end are 0. */
static inline uint64_t fuzz_number(struct fuzz_input *input, unsigned bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes && input->at < input->end; i++)
    value |= (uint64_t)*input->at++ << 8 * i;
  return value;
}

/* The bytes up to the next `mark`, or to the end. */
static inline struct fuzz_input fuzz_part(struct fuzz_input *input, uint8_t mark) {
  struct fuzz_input part = *input;
  while (input->at < input->end && *input->at != mark)
    input->at++;
  part.end = input->at;
  input->at += input->at < input->end;
  return part;
}

/* A copy with a zero byte behind. The caller frees it. */
static inline char *fuzz_text(struct fuzz_input input) {
  size_t length = (size_t)(input.end - input.at);
  char *text = CHECK_GOT(malloc(length + 1));
  if (length)
    memcpy(text, input.at, length);
  text[length] = 0;
  return text;
}

/* The input as it is, and a copy with what `mend` puts right. */
static inline void fuzz_both(const uint8_t *data, size_t size, void (*look)(const void *bytes, size_t length),
                             void (*mend)(uint8_t *bytes, size_t length)) {
  look(data, size);
  uint8_t *mended = CHECK_GOT(malloc(size));
  memcpy(mended, data, size);
  mend(mended, size);
  look(mended, size);
  free(mended);
}

/* A file in memory with these bytes; `path` leads to it. */
struct fuzz_file {
  int fd;
  char path[64];
};
static inline struct fuzz_file fuzz_file(const char *name, const void *bytes, size_t length) {
  struct fuzz_file file = {.fd = memfd_create(name, MFD_CLOEXEC | MFD_ALLOW_SEALING)};
  CHECK(file.fd >= 0);
  CHECK(write(file.fd, bytes, length) == (ssize_t)length);
  snprintf(file.path, sizeof file.path, "/proc/self/fd/%d", file.fd);
  return file;
}

#ifdef FUZZ_FILES
/* The system calls of the core. A path that fuzz_find knows leads to bytes of the input; any other path, nowhere. */
enum { FUZZ_FDS = 16, FUZZ_FD_FIRST = 1 << 20 };
static struct fuzz_input fuzz_open_files[FUZZ_FDS];
static struct fuzz_input fuzz_contents[FUZZ_FDS]; /* whole, for reads at an offset */

/* The target says what lies at a path. */
static bool fuzz_find(const char *path, struct fuzz_input *content);

long __real_os_kernel(long number, ...);
long __wrap_os_kernel(long number, ...);

static inline long fuzz_open(const char *path) {
  struct fuzz_input content;
  if (!fuzz_find(path, &content)) {
    errno = ENOENT;
    return -1;
  }
  for (int i = 0; i < FUZZ_FDS; i++)
    if (!fuzz_contents[i].at) {
      fuzz_open_files[i] = fuzz_contents[i] = content;
      return FUZZ_FD_FIRST + i;
    }
  CHECK_SAY(0, "a descriptor stayed open");
  return -1;
}

/* In pieces of 61 bytes, so that lines are cut anywhere. */
static inline long fuzz_read(struct fuzz_input *from, void *into, size_t room) {
  size_t bytes = (size_t)(from->end - from->at);
  bytes = bytes < room ? bytes : room;
  bytes = bytes < 61 ? bytes : 61;
  memcpy(into, from->at, bytes);
  from->at += bytes;
  return (long)bytes;
}

static inline long fuzz_read_at(struct fuzz_input from, void *into, size_t room, size_t offset) {
  size_t length = (size_t)(from.end - from.at);
  if (offset >= length) {
    errno = EIO;
    return -1;
  }
  size_t bytes = room < length - offset ? room : length - offset;
  memcpy(into, from.at + offset, bytes);
  return (long)bytes;
}

/* Missing arguments are passed on with whatever value is there. */
__attribute__((no_sanitize("address"))) long __wrap_os_kernel(long number, ...) {
  long a[6];
  va_list list;
  va_start(list, number);
  for (unsigned i = 0; i < 6; i++)
    a[i] = va_arg(list, long);
  va_end(list);
  if (number == SYS_openat)
    return fuzz_open((const char *)a[1]);
  if (a[0] >= FUZZ_FD_FIRST && a[0] < FUZZ_FD_FIRST + FUZZ_FDS) {
    int i = (int)a[0] - FUZZ_FD_FIRST;
    if (number == SYS_read)
      return fuzz_read(&fuzz_open_files[i], (void *)a[1], (size_t)a[2]);
    if (number == SYS_pread64)
      return fuzz_read_at(fuzz_contents[i], (void *)a[1], (size_t)a[2], (size_t)a[3]);
    if (number == SYS_close) {
      fuzz_contents[i].at = NULL;
      return 0;
    }
  }
  return __real_os_kernel(number, a[0], a[1], a[2], a[3], a[4], a[5]);
}

static inline void fuzz_files_closed(void) {
  for (int i = 0; i < FUZZ_FDS; i++)
    CHECK_SAY(!fuzz_contents[i].at, "a descriptor stayed open");
}
#endif
