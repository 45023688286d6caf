#include "inspect/process.h"

#include "base/counters.h"
#include "os/filter.h"
#include "os/os.h"
#include "os/text_file.h"

#include <fcntl.h>
#include <sys/resource.h>
#include <time.h>

#define CHUNK_BYTES 4096u

/* Reads the kernel's sums over all mappings, in lines "KEY: N kB". */
static void read_sums(struct hak_process_stats *out) {
  char text[CHUNK_BYTES];
  size_t length = 0;
  int fd = os_text_open("/proc/self/smaps_rollup", O_RDONLY);
  if (fd < 0)
    return;
  for (size_t got = 1; got > 0 && length < sizeof text - 1; length += got)
    got = os_text_read(fd, text + length, sizeof text - 1 - length);
  os_text_close(fd);
  text[length] = 0;
  out->rss_bytes = os_text_field(text, "\nRss:") * 1024;
  out->lazy_free_bytes = os_text_field(text, "\nLazyFree:") * 1024;
  out->huge_page_bytes = os_text_field(text, "\nAnonHugePages:") * 1024;
  out->swap_bytes = os_text_field(text, "\nSwap:") * 1024;
}

/* Counts the lines of the list, one for each mapping. */
static uint64_t count_mappings(void) {
  char text[CHUNK_BYTES];
  uint64_t lines = 0;
  int fd = os_text_open("/proc/self/maps", O_RDONLY);
  if (fd < 0)
    return 0;
  for (size_t got; (got = os_text_read(fd, text, sizeof text)) > 0;)
    for (size_t i = 0; i < got; i++)
      lines += text[i] == '\n';
  os_text_close(fd);
  return lines;
}

/* ru_maxrss is no peak of this process: it inherits the value through exec from the process that started it. */
static void read_usage(struct hak_process_stats *out) {
  struct rusage usage;
  out->rss_peak_bytes = os_file_field("/proc/self/status", "VmHWM:") * 1024;
  if (getrusage(RUSAGE_SELF, &usage) == 0) {
    out->faults_minor = (uint64_t)usage.ru_minflt;
    out->faults_major = (uint64_t)usage.ru_majflt;
  }
}

void os_process_read(struct hak_process_stats *out) {
  KEEP_ERRNO;
  *out = (struct hak_process_stats){0};
  if (!os_may_read_files())
    return;
  counter_note(calls_other);
  read_usage(out);
  read_sums(out);
  if (out->rss_bytes == 0) /* an old kernel lacks the file, or the process may not read it */
    out->rss_bytes = os_resident_of_process();
  out->mapping_count = count_mappings();
}

uint64_t os_epoch_nanoseconds(void) { return os_nanoseconds_of(CLOCK_REALTIME); }
uint64_t os_thread_nanoseconds(void) { return os_nanoseconds_of(CLOCK_THREAD_CPUTIME_ID); }
