/* When the machine gets short of memory, free memory goes back at once: a program that keeps 64 MiB free, and
 * may, gives them back while two others fight over a group that is too small for them.
 *
 *     pressure [SECONDS]    how long it waits for that; a control waits in vain
 *
 * Skipped where the kernel does not report pressure (PSI), or where this does not make any. */
#include <poll.h>
#include <sys/mman.h>

#include "../heap_api.h"
#include "group.h"

#define GROUP_BYTES ((size_t)24 << 20)
#define FILE_BYTES ((size_t)26 << 20) /* each of the two has one mapped, and reads it all the time */
#define KEPT_KIB (64L * 1024)
#define BLOCK_BYTES 1000
#define PRESSURE_MS_MAX 15000
#define WARM_UP_MS 2000
#define OPTIONS "HAKMEM_KEEP_MB=4096", "HAKMEM_PURGE_DELAY_MS=3600000"

/* Waits to be told to start: a fork at that time would have the parent give its memory back. */
static void fight(const struct group *group) {
  raise(SIGSTOP);
  char name[] = "pressure-XXXXXX", bytes[4096] = {1};
  int fd = mkstemp(name);
  if (fd < 0 || unlink(name) != 0 || !group_write(group->folder, "cgroup.procs", "0"))
    _exit(1);
  for (size_t i = 0; i < FILE_BYTES; i += sizeof bytes)
    if (write(fd, bytes, sizeof bytes) < 0)
      _exit(1);
  fsync(fd);
  const volatile char *map = mmap(NULL, FILE_BYTES, PROT_READ, MAP_SHARED, fd, 0);
  if (map == MAP_FAILED || madvise((void *)(uintptr_t)map, FILE_BYTES, MADV_RANDOM) != 0)
    _exit(1);
  for (uint64_t seed = (uint64_t)getpid();;)
    (void)map[test_random(&seed) % FILE_BYTES];
}

static pid_t fighter_start(const struct group *group) {
  pid_t parent = getpid(), child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    if (prctl(PR_SET_PDEATHSIG, SIGKILL) != 0 || getppid() != parent)
      _exit(1);
    fight(group);
  }
  return child;
}

static void fighter_end(pid_t child) {
  kill(child, SIGKILL);
  while (waitpid(child, NULL, 0) < 0 && errno == EINTR)
    ;
}

/* What this program itself hears of pressure, so that it knows when there is some. */
static int pressure_open(void) {
  static const char *const triggers[] = {"some 150000 1000000", "some 300000 2000000"};
  int fd = open("/proc/pressure/memory", O_RDWR | O_NONBLOCK | O_CLOEXEC);
  for (int i = 0; fd >= 0 && i < 2; i++)
    if (write(fd, triggers[i], strlen(triggers[i]) + 1) > 0)
      return fd;
  test_skip("the kernel does not report memory pressure (PSI)");
}

static int pressure_now(int fd) {
  struct pollfd watched = {.fd = fd, .events = POLLPRI};
  return poll(&watched, 1, 0) == 1 && watched.revents == POLLPRI;
}

/* A program at work: an idle one would give its memory back anyway. */
static void work_for(long ms) {
  for (double end = test_seconds() + (double)ms * 1e-3; test_seconds() < end; test_pause_ms(10))
    for (size_t size = 40000; size < 400000; size += 10000)
      t_free(test_opaque(t_malloc(size)));
}

static void keep_memory(void) {
  static void *blocks[KEPT_KIB * 1024 / BLOCK_BYTES];
  size_t count = sizeof blocks / sizeof blocks[0];
  t_fill(blocks, count, BLOCK_BYTES, 1);
  t_free_all(blocks, count);
  memset(blocks, 0, sizeof blocks);
}

int main(int argc, char **argv) {
  static char *const options[] = {OPTIONS};
  struct group group;
  pid_t fighters[2];
  test_begin(argc, argv);
  test_skip_if(!TEST_RSS_COUNTS, "RSS is not the heap's alone here");
  if (!getenv("TEST_LIMITED")) {
    for (size_t i = 0; i < sizeof options / sizeof options[0]; i++)
      putenv(options[i]);
    setenv("TEST_LIMITED", "1", 1);
    execv(argv[0], argv);
    check_failed(__FILE__, __LINE__, "execv", "%s", strerror(errno));
  }
  group_make(&group, GROUP_BYTES);
  for (int i = 0; i < 2; i++)
    fighters[i] = fighter_start(&group);
  int pressure = pressure_open();
  long before = test_rss_kib();
  keep_memory();
  work_for(WARM_UP_MS);
  (void)pressure_now(pressure); /* what others caused */
  long kept = test_rss_kib() - before;
  CHECK_SAY(kept >= KEPT_KIB * 8 / 10, "%ld KiB kept without pressure", kept);
  for (int i = 0; i < 2; i++)
    kill(fighters[i], SIGCONT);
  int pressed = 0;
  for (double end = test_seconds() + PRESSURE_MS_MAX * 1e-3; !pressed && test_seconds() < end;) {
    work_for(100);
    pressed = pressure_now(pressure);
  }
  double start = test_seconds(), patience = argc > 1 ? atof(argv[1]) : TEST_PATIENCE_SECONDS;
  long left = kept;
  while (pressed && left > KEPT_KIB / 4 && test_seconds() < start + patience) {
    work_for(100);
    left = test_rss_kib() - before;
  }
  double took = test_seconds() - start;
  for (int i = 0; i < 2; i++)
    fighter_end(fighters[i]);
  group_remove(&group);
  test_skip_if(!pressed, "no memory pressure came about");
  CHECK_SAY(left <= KEPT_KIB / 4, "%ld KiB of %ld are still kept under pressure", left, kept);
  printf("pressure: ok (%ld KiB kept, %ld KiB left after %.1f s of pressure)\n", kept, left, took);
}
