/* The files of control groups: /proc/self/cgroup, /proc/self/mountinfo, and the value of a limit, with a zero byte
 * between. */
#define FUZZ_FILES

#include "fuzz.h"

#include "os/cgroup.h"

static struct fuzz_input groups, mounts, value;

static bool fuzz_find(const char *path, struct fuzz_input *content) {
  *content = strcmp(path, "/proc/self/cgroup") == 0      ? groups
             : strcmp(path, "/proc/self/mountinfo") == 0 ? mounts
                                                         : value;
  return true;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct fuzz_input input = {data, data + size};
  struct os_memory_limits limits;
  if (size == 0)
    return 0;
  groups = fuzz_part(&input, 0);
  mounts = fuzz_part(&input, 0);
  value = input;
  errno = 7;
  os_memory_limits_read(&limits);
  CHECK(limits.max_bytes != SIZE_MAX || limits.swap_bytes == 0);
  CHECK(os_cpu_limit_read() > 0 && errno == 7);
  fuzz_files_closed();
  return 0;
}
