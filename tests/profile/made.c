/* made: writes profiles of samples that are told here, for profile.pprof.
 *     made known FILE             addresses and figures that check.py knows
 *     made real FILE              stacks of this program's functions, called by `works`: 1000 times 1 KiB from `reads`,
 *                                 then 12 times 1 MiB from `parses`, of which 9 are freed
 *                                 A page of the program is mapped once more, alone.
 *     made real FILE --deleted    the same by a program whose file is gone
 */
#include "../check.h"

#include "profile/pprof.h"

#include <dlfcn.h>
#include <execinfo.h>
#include <sys/mman.h>

#define FRAMES 32
#define NOT_INLINED __attribute__((noinline))

static struct samples samples;
static char blocks[4096];
static unsigned block_count;

static void write_profile(const char *path) {
  const struct pprof_about about = {
      .period_bytes = 524288, .time_ns = 1700000000123456789, .duration_ns = 60000000000, .version = "hakmem 1.2.3"};
  struct os_file_part file;
  if (!os_file_begin(&file, path))
    pprof_add(&file, &samples, &about);
  enum os_file_error error = os_file_end(&file);
  CHECK_SAY(error == OS_FILE_OK, "%s", os_file_words(error));
}

/* --- known figures --- */

static void add(unsigned block, const uintptr_t *stack, unsigned depth, uint64_t bytes, uint64_t objects_1024) {
  CHECK(samples_add(&samples, blocks + block, stack, depth, (struct sample_weight){bytes, objects_1024}));
}

static void known(void) {
  const uintptr_t long_one[] = {0x1001, 0x2001, 0x3001}, short_one[] = {0x1001, 0x7fffffff0001};
  uintptr_t deepest[SAMPLES_DEPTH_MAX];
  for (unsigned i = 0; i < SAMPLES_DEPTH_MAX; i++)
    deepest[i] = UINTPTR_MAX - i;
  add(0, long_one, 3, 1000, 1024);
  add(1, long_one, 3, 2000, 1535); /* 1.49902 objects */
  add(2, short_one, 2, 500, 10 * 1024);
  samples_remove(&samples, blocks);
  add(3, deepest, SAMPLES_DEPTH_MAX, 7, 512);
  add(4, NULL, 0, UINT64_C(1) << 40, 3 * 1024); /* the peak */
  samples_remove(&samples, blocks + 4);
  add(5, short_one, 2, 100, 0);
  samples.others = (struct sample_stack){.allocated = {11, 1024}, .live = {11, 1024}, .changed = ++samples.events};
  samples.dropped = (struct sample_weight){44, 1024};
}

/* --- real addresses --- */

#ifdef __SANITIZE_ADDRESS__ /* it has a backtrace of its own, which calls libc's */
#define SANITIZED_FRAMES 1
#else
#define SANITIZED_FRAMES 0
#endif

NOT_INLINED static void sample(uint64_t bytes) {
  void *frames[FRAMES];
  int depth = backtrace(frames, FRAMES);
  /* This function is left out, and so is the sanitizer's that stands before it. */
  const int left_out = SANITIZED_FRAMES + 1;
  add(block_count++, (const uintptr_t *)frames + left_out, (unsigned)(depth - left_out), bytes, 1024);
}

NOT_INLINED static int reads(int n) {
  sample(1 << 10);
  return n + 1; /* no call is the last thing: it would leave no frame */
}

NOT_INLINED static int parses(int n) {
  sample(1 << 20);
  return n + 1;
}

NOT_INLINED static int works(void) {
  int sum = 0;
  for (int i = 0; i < 1000; i++)
    sum += reads(i);
  for (int i = 0; i < 12; i++)
    sum += parses(i);
  for (unsigned i = 1000; i < 1009; i++)
    samples_remove(&samples, blocks + i);
  return sum;
}

static void map_page(char *at, const char *file, size_t offset, int protection) {
  int fd = open(file, O_RDONLY | O_CLOEXEC);
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  CHECK(fd >= 0 && mmap(at, page, protection, MAP_PRIVATE | MAP_FIXED, fd, (off_t)offset) == at);
  close(fd);
}

/* Code of a file that has the first page of another one before it, but not its own. */
static void map_a_part(const char *file) {
  Dl_info library;
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  char *pages = mmap(NULL, 2 * page, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(pages != MAP_FAILED && dladdr((void *)(uintptr_t)backtrace, &library) != 0);
  map_page(pages, library.dli_fname, 0, PROT_READ);
  map_page(pages + page, file, page, PROT_READ | PROT_EXEC);
}

int main(int count, char **words) {
  CHECK(count >= 3);
  if (strcmp(words[1], "known") == 0)
    known();
  else
    CHECK(works() > 0);
  map_a_part(words[0]);
  if (count == 4)
    CHECK(unlink(words[0]) == 0);
  write_profile(words[2]);
  samples_clear(&samples);
}
