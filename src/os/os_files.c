/* os_files.c: descriptors, the environment, /proc/self. */
#include "base/counters.h"
#include "os/os.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/text_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#define DESCRIPTORS_USUAL 1024 /* the usual limit: a process's table that is larger costs memory */
#define DESCRIPTORS_OURS 32    /* the highest of these numbers are used */

int os_duplicate_high(int fd) {
  KEEP_ERRNO;
  struct rlimit limit = {.rlim_cur = DESCRIPTORS_USUAL};
  getrlimit(RLIMIT_NOFILE, &limit);
  long most = (long)min_size(limit.rlim_cur, DESCRIPTORS_USUAL);
  return (int)os_kernel(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, most - min_size(DESCRIPTORS_OURS, most / 2));
}

/* Makes the call that the C library makes, because a filter from before the program allows that one. On both
 * architectures the kernel's struct is the library's. */
bool os_file_status(int fd, struct stat *status) {
  return os_kernel(SYS_newfstatat, (long)fd, "", status, (long)AT_EMPTY_PATH) == 0;
}

struct os_file os_file_identity(int fd) {
  struct stat status;
  KEEP_ERRNO;
  bool known = os_file_status(fd, &status);
  return known ? (struct os_file){.device = status.st_dev, .inode = status.st_ino} : (struct os_file){0};
}

bool os_file_is(int fd, struct os_file file) {
  struct os_file now = os_file_identity(fd);
  return now.device == file.device && now.inode == file.inode;
}

const char *os_environment_next(const char *prefix, size_t *cursor) {
  if (environ == NULL || getauxval(AT_SECURE))
    return NULL;
  while (environ[*cursor] != NULL) {
    const char *assignment = environ[(*cursor)++];
    if (strncmp(assignment, prefix, strlen(prefix)) == 0 && strchr(assignment, '=') != NULL)
      return assignment;
  }
  return NULL;
}

size_t os_resident_of_process(void) {
  KEEP_ERRNO;
  char text[128];
  if (!os_may_read_files())
    return 0;
  counter_note(calls_other);
  const char *line = os_line_read(os_text_open("/proc/self/statm", O_RDONLY), text, sizeof text);
  return line != NULL ? (size_t)os_text_field(line, " ") * os_page_bytes() : 0; /* the second number */
}

void os_random(void *bytes, size_t size) {
  KEEP_ERRNO;
  unsigned char *at = bytes;
  long got = os_may_read_files() ? os_kernel(SYS_getrandom, bytes, size, 1L) : -1; /* GRND_NONBLOCK */
  const unsigned char *given = (const unsigned char *)getauxval(AT_RANDOM);
  for (size_t i = got > 0 ? (size_t)got : 0; i < size; i++) {
    uint64_t mixed = (os_nanoseconds() + i) * MIX_STEP;
    at[i] = (unsigned char)(mixed >> 32) ^ (given ? given[i % 16] : 0);
  }
}
