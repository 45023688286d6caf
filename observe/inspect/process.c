#include "inspect/process.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/os.h"

#include <errno.h>
#include <fcntl.h>
#include <string.h>
#include <sys/syscall.h>
#include <unistd.h>

#define CHUNK_BYTES 4096u

/* Reads on from where the last call stopped. Returns the bytes read, 0 at the end. */
static size_t read_some(int fd, char *bytes, size_t capacity) {
  long got;
  do
    got = os_kernel(SYS_read, fd, bytes, capacity);
  while (got < 0 && errno == EINTR);
  return got > 0 ? (size_t)got : 0;
}

static int file_open(const char *path) { return (int)os_kernel(SYS_openat, AT_FDCWD, path, O_RDONLY | O_CLOEXEC); }

/* Returns the number of the line "KEY: N kB", in bytes. */
static uint64_t field_bytes(const char *text, const char *key) {
  const char *line = strstr(text, key);
  uint64_t kib = 0;
  for (const char *c = line ? line + strlen(key) : ""; *c && *c != '\n'; c++)
    if (*c >= '0' && *c <= '9')
      kib = kib * 10 + (uint64_t)(*c - '0');
  return kib * 1024;
}

/* Reads the kernel's sums over all mappings. */
static void read_sums(struct os_process *out) {
  char text[CHUNK_BYTES];
  size_t length = 0;
  int fd = file_open("/proc/self/smaps_rollup");
  if (fd < 0)
    return;
  for (size_t got; length < sizeof text - 1 && (got = read_some(fd, text + length, sizeof text - 1 - length)) > 0;)
    length += got;
  os_kernel(SYS_close, fd);
  text[length] = 0;
  out->resident_bytes = field_bytes(text, "\nRss:");
  out->lazy_free_bytes = field_bytes(text, "\nLazyFree:");
  out->huge_page_bytes = field_bytes(text, "\nAnonHugePages:");
  out->swap_bytes = field_bytes(text, "\nSwap:");
}

/* Counts the lines of the list, one for each mapping. */
static uint64_t count_mappings(void) {
  char text[CHUNK_BYTES];
  uint64_t lines = 0;
  int fd = file_open("/proc/self/maps");
  if (fd < 0)
    return 0;
  for (size_t got; (got = read_some(fd, text, sizeof text)) > 0;)
    for (size_t i = 0; i < got; i++)
      lines += text[i] == '\n';
  os_kernel(SYS_close, fd);
  return lines;
}

void os_process_read(struct os_process *out) {
  int kept = errno;
  struct os_usage usage = {0};
  os_usage_read(&usage);
  *out = (struct os_process){
      .resident_peak_bytes = usage.resident_peak_bytes,
      .faults_minor = usage.faults_minor,
      .faults_major = usage.faults_major,
  };
  if (!os_may_read_files())
    return;
  read_sums(out);
  if (out->resident_bytes == 0) /* an old kernel lacks the file, or the process may not read it */
    out->resident_bytes = os_resident_of_process();
  out->mapping_count = count_mappings();
  errno = kept;
}
