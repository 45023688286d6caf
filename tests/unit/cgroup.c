/* cgroup: limits and pressure files are found in made-up /proc and /sys trees of all kinds. Each tree is read three
 * times: as it is, with every system call interrupted once, and byte by byte. Nothing odd is taken for a limit, no
 * descriptor is left open, errno stays.
 */
#include "unit.h"

#include "tree.h"

#include "os/cgroup.h"

#include <poll.h>

#define NONE SIZE_MAX
#define PROC "22 27 0:21 / /proc rw,relatime - proc proc rw\n"
#define MOUNT_V2 "35 24 0:30 / /sys/fs/cgroup rw,nosuid shared:9 - cgroup2 cgroup2 rw,nsdelegate\n"
#define MOUNT_V1 "36 31 0:33 / /sys/fs/cgroup/memory rw,relatime - cgroup cgroup rw,memory\n"

/* The system calls of the core, on their way to the kernel. */

static struct {
  bool interrupt;        /* each call fails once with EINTR */
  bool by_byte;          /* reads get a byte at a time */
  int refused_writes;    /* so many fail with EINVAL */
  int scripted_polls;    /* so many ppolls do not go to the kernel ... */
  short scripted_events; /* ... and report this */
  bool interrupted;
  long inherited; /* descriptors that a program started meanwhile would get */
  long polled_ms; /* for which the last one asked to wait */
} world;

TEST_WRAP(long, os_kernel, long number, long a, long b, long c, long d, long e, long f) {
  bool slow = number == SYS_openat || number == SYS_read || number == SYS_write || number == SYS_ppoll;
  if (slow && world.interrupt) {
    world.interrupted = !world.interrupted;
    if (world.interrupted) {
      errno = EINTR;
      return -1;
    }
  }
  if (number == SYS_openat && !(c & O_CLOEXEC))
    world.inherited++;
  if (number == SYS_read && world.by_byte && c > 1)
    c = 1;
  if (number == SYS_write && world.refused_writes > 0) {
    world.refused_writes--;
    errno = EINVAL;
    return -1;
  }
  if (number == SYS_ppoll) {
    const struct timespec *wait = (const struct timespec *)(uintptr_t)c;
    world.polled_ms = wait ? wait->tv_sec * 1000 + wait->tv_nsec / 1000000 : -1;
    if (world.scripted_polls > 0) {
      world.scripted_polls--;
      ((struct pollfd *)(uintptr_t)a)->revents = world.scripted_events;
      return world.scripted_events != 0;
    }
  }
  return __real_os_kernel(number, a, b, c, d, e, f);
}

static void tree_begin(const char *cgroup, const char *mountinfo) {
  tree_made();
  if (cgroup)
    put("/proc/self/cgroup", cgroup);
  if (mountinfo)
    put("/proc/self/mountinfo", mountinfo);
}

static int forget_tree(void **state) {
  memset(&world, 0, sizeof world);
  tree_end();
  return 0;
}

static int lowest_free_descriptor(void) {
  int fd = open("/dev/null", O_RDONLY | O_CLOEXEC);
  assert_true(fd >= 0);
  close(fd);
  return fd;
}

#define DESCRIPTORS_END 1024

static bool was_open[DESCRIPTORS_END];

__attribute__((constructor)) static void note_open(void) {
  for (int fd = 0; fd < DESCRIPTORS_END; fd++)
    was_open[fd] = fcntl(fd, F_GETFD) >= 0;
}

/* Returns the descriptor of the pressure file, which has a high number; -1: none is open. */
static int watched(void) {
  int fd = 100;
  while (fd < DESCRIPTORS_END && (was_open[fd] || fcntl(fd, F_GETFD) < 0))
    fd++;
  return fd < DESCRIPTORS_END ? fd : -1;
}

static int watch_again(void) {
  os_pressure_in_child();
  assert_int_equal(watched(), -1);
  unit_option("HAKMEM_CGROUP", "on");
  errno = 4711;
  os_pressure_watch();
  assert_int_equal(errno, 4711);
  unit_option("HAKMEM_CGROUP", "off");
  return watched();
}

static struct os_memory_limits limits_here(void) {
  struct os_memory_limits limits = {1, 2, 3};
  int free_before = lowest_free_descriptor();
  errno = 4711;
  os_memory_limits_read(&limits);
  assert_int_equal(errno, 4711);
  assert_int_equal(lowest_free_descriptor(), free_before);
  assert_int_equal(world.inherited, 0);
  return limits;
}

/* Under all conditions alike. */
static void expect_all(size_t max, size_t high, size_t swap) {
  for (unsigned i = 0; i < 3; i++) {
    world.interrupt = i == 1;
    world.by_byte = i == 2;
    struct os_memory_limits limits = limits_here();
    world.interrupt = world.by_byte = false;
    assert_true(limits.max_bytes == max);
    assert_true(limits.high_bytes == high);
    assert_true(limits.swap_bytes == swap);
  }
}

static void expect(size_t max, size_t high) { expect_all(max, high, 0); }

/* What one more file, or one that is replaced, makes of it. */
static void with_swap(const char *name, const char *text, size_t max, size_t high, size_t swap) {
  put(name, text);
  expect_all(max, high, swap);
}
static void with(const char *name, const char *text, size_t max, size_t high) { with_swap(name, text, max, high, 0); }

UNIT_TEST_BETWEEN(the_smallest_of_all_groups_above_holds, NULL, forget_tree) {
  tree_begin("0::/a/b/c\n", PROC MOUNT_V2);
  expect(NONE, NONE);
  with("/sys/fs/cgroup/a/b/c/memory.max", "104857600\n", 100 * MIB, NONE);
  put("/sys/fs/cgroup/a/memory.max", "52428800\n");
  put("/sys/fs/cgroup/a/b/memory.max", "max\n");
  put("/sys/fs/cgroup/a/b/memory.high", "41943040\n");
  with("/sys/fs/cgroup/a/b/c/memory.high", "83886080\n", 50 * MIB, 40 * MIB);
  put("/sys/fs/cgroup/a/b/d/memory.max", "1\n"); /* not ours */
  put("/sys/fs/memory.max", "2\n");              /* above the mount */
  with("/memory.max", "3\n", 50 * MIB, 40 * MIB);
  with("/sys/fs/cgroup/memory.max", "10485760\n", 10 * MIB, 40 * MIB);
}

UNIT_TEST_BETWEEN(only_a_number_is_a_limit, NULL, forget_tree) {
  static const struct {
    const char *text;
    size_t limit;
  } rows[] = {
      {"104857600\n", 100 * MIB},
      {"104857600", 100 * MIB},
      {"0\n", 0},
      {"1", 1},
      {"000000000000000000007\n", 7},
      {"max\n", NONE},
      {"max", NONE},
      {"", NONE},
      {"\n", NONE},
      {"-1\n", NONE},
      {" 5\n", NONE},
      {"5 \n", NONE},
      {"5x\n", NONE},
      {"5 MiB\n", NONE},
      {"0x500000\n", NONE},
      {"5\r\n", NONE},
      {"4611686018427387903\n", ((size_t)1 << 62) - 1},
      {"4611686018427387904\n", NONE},
      {"9223372036854771712\n", NONE}, /* v1's "no limit" with pages of 4 and 64 KiB, and before 3.19 */
      {"9223372036854710272\n", NONE},
      {"9223372036854775807\n", NONE},
      {"18446744073709551615\n", NONE},
      {"18446744073709551616\n", NONE},
      {"18446744073709551620\n", NONE},
      {"100000000000000000000000\n", NONE},
      {"99999999999999999999999999999\n", NONE},
      {"100000000000000000000000000000000000000000000000000000000000000000000000\n", NONE},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tree_begin("0::/a\n", MOUNT_V2);
    put("/sys/fs/cgroup/a/memory.max", rows[i].text);
    with("/sys/fs/cgroup/a/memory.high", rows[i].text, rows[i].limit, rows[i].limit);
    tree_begin("7:memory:/a\n", MOUNT_V1);
    with("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", rows[i].text, rows[i].limit, NONE);
  }
}

UNIT_TEST_BETWEEN(processors_of_a_group_are_rounded_up, NULL, forget_tree) {
  static const struct {
    const char *text;
    size_t cpus;
  } rows[] = {
      {"max 100000\n", NONE},      {"200000 100000\n", 2},
      {"200001 100000\n", 3},      {"1000 100000", 1},
      {"50000 25000\n", 2},        {"0 100000\n", 1},
      {"100000\n", NONE},          {"100000 0\n", NONE},
      {"100000 100000 1\n", NONE}, {"", NONE},
      {"1 max\n", NONE},
  };
  for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    tree_begin("3:memory,cpu:/a\n0::/a/b\n", PROC MOUNT_V1 MOUNT_V2);
    put("/sys/fs/cgroup/a/b/cpu.max", rows[i].text);
    errno = 4711;
    assert_true(os_cpu_limit_read() == rows[i].cpus);
    assert_int_equal(errno, 4711);
    put("/sys/fs/cgroup/a/cpu.max", "400000 100000\n");
    world.interrupt = true;
    assert_true(os_cpu_limit_read() == min_size(rows[i].cpus, 4));
    world.interrupt = false;
  }
}

UNIT_TEST_BETWEEN(a_last_line_needs_no_newline, NULL, forget_tree) {
  tree_begin("3:cpu:/x\n0::/a", PROC "35 24 0:30 / /sys/fs/cgroup rw - cgroup2 cgroup2 rw");
  with("/sys/fs/cgroup/a/memory.max", "5000", 5000, NONE);
}

UNIT_TEST_BETWEEN(version_1_alone, NULL, forget_tree) {
  tree_begin(
      "11:cpuset:/no\n4:hugetlb,memory:/docker/id\n3:name=memory:/no\n2:memoryx,xmemory:/no\n1:name=systemd:/no\n",
      PROC "31 23 0:28 / /sys/fs/cgroup rw - tmpfs tmpfs rw\n"
           "30 31 0:29 / /sys/fs/cgroup/cpu rw - cgroup cgroup rw,cpu,cpuacct\n"
           "29 31 0:29 / /sys/fs/cgroup/named rw - cgroup cgroup rw,name=memory\n"
           "33 31 0:33 / /sys/fs/cgroup/hugetlb,memory rw - cgroup none rw,hugetlb,memory,clone_children\n");
  put("/sys/fs/cgroup/cpu/docker/id/memory.limit_in_bytes", "1\n");
  put("/sys/fs/cgroup/named/docker/id/memory.limit_in_bytes", "2\n");
  put("/sys/fs/cgroup/hugetlb,memory/no/memory.limit_in_bytes", "3\n");
  with("/sys/fs/cgroup/hugetlb,memory/docker/id/memory.max", "4\n", NONE, NONE);
  put("/sys/fs/cgroup/hugetlb,memory/docker/id/memory.limit_in_bytes", "209715200\n");
  with("/sys/fs/cgroup/hugetlb,memory/docker/memory.limit_in_bytes", "9223372036854771712\n", 200 * MIB, NONE);
  with("/sys/fs/cgroup/hugetlb,memory/memory.limit_in_bytes", "104857600\n", 100 * MIB, NONE);
}

UNIT_TEST_BETWEEN(both_versions_beside_each_other, NULL, forget_tree) {
  tree_begin("4:memory:/one\n0::/two\n", PROC MOUNT_V1 "41 31 0:38 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", "104857600\n");
  put("/sys/fs/cgroup/memory/two/memory.limit_in_bytes", "1\n");
  put("/sys/fs/cgroup/unified/two/cgroup.procs", "");
  with("/sys/fs/cgroup/unified/one/memory.max", "2\n", 100 * MIB, NONE);
  put("/sys/fs/cgroup/unified/two/memory.max", "83886080\n");
  with("/sys/fs/cgroup/unified/two/memory.high", "73400320\n", 80 * MIB, 70 * MIB);
}

UNIT_TEST_BETWEEN(a_mount_that_shows_a_part, NULL, forget_tree) {
  static const char *const info = PROC "35 24 0:30 /docker/id /sys/fs/cgroup ro - cgroup2 cgroup2 rw\n";
  tree_begin("0::/docker/id/inner\n", info);
  put("/sys/fs/cgroup/inner/memory.max", "8000\n");
  put("/sys/fs/cgroup/memory.high", "7000\n");
  with("/sys/fs/cgroup/docker/id/inner/memory.max", "1\n", 8000, 7000);
  with("/proc/self/cgroup", "0::/docker/id\n", NONE, 7000);
  with("/proc/self/cgroup", "0::/docker/id2/inner\n", NONE, NONE); /* not in there */
  with("/proc/self/cgroup", "0::/docker\n", NONE, NONE);
  with("/proc/self/cgroup", "0::/\n", NONE, NONE);
}

UNIT_TEST_BETWEEN(namespaces, NULL, forget_tree) {
  tree_begin("0::/\n", PROC MOUNT_V2); /* our own root */
  put("/sys/fs/cgroup/memory.max", "9000\n");
  put("/sys/fs/cgroup/memory.high", "8000\n");
  put("/sys/fs/memory.max", "1\n");
  with("/sys/fs/other/memory.max", "2\n", 9000, 8000);
  with("/proc/self/cgroup", "0::/../other\n", NONE, NONE); /* moved out of the namespace: not in this mount */
  with("/proc/self/cgroup", "0::/..\n", NONE, NONE);
  put("/proc/self/cgroup", "0::/..name/x\n"); /* a name like others */
  with("/sys/fs/cgroup/..name/x/memory.max", "500\n", 500, 8000);
  /* A mount made outside shows a group above us first, and ours under a name not told. */
  tree_begin("0::/inner\n", PROC "35 24 0:30 /../.. /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n");
  put("/sys/fs/cgroup/memory.max", "6000\n");
  with("/sys/fs/cgroup/inner/memory.max", "1\n", 6000, NONE);
  put("/proc/self/cgroup", "0::/../../beside\n");
  with("/sys/fs/cgroup/beside/memory.max", "4000\n", 4000, NONE);
  with("/proc/self/cgroup", "0::/../../../far\n", NONE, NONE);
  with("/proc/self/cgroup", "0::/../beside\n", NONE, NONE);
}

UNIT_TEST_BETWEEN(names_with_spaces_and_escapes, NULL, forget_tree) {
  tree_begin(
      "0::/a b/c:d\\e/\\040\n", PROC
      "35 24 0:30 /a\\040b /mnt\\040x/tab\\011back\\134slash\\12\\1x1 rw master:1 shared:2 - cgroup2 my\\040src rw\n");
  with("/mnt x/tab\tback\\slash\\12\\1x1/c:d\\e/\\040/memory.max", "700\n", 700, NONE);
  put("/mnt x/tab\tback\\slash\\12\\1x1/c:d\\e/memory.max", "600\n");
  with("/mnt x/tab\tback\\slash\\12\\1x1/memory.high", "500\n", 600, 500);
  /* A source may be empty, and a dash may stand anywhere. */
  tree_begin("0::/-\n", "35 24 0:30 / /- - - - cgroup2 cgroup2 rw\n35 24 0:30 / /- rw - cgroup2  rw\n");
  with("/-/-/memory.max", "300\n", 300, NONE);
}

UNIT_TEST_BETWEEN(long_lines_are_passed_over, NULL, forget_tree) {
  static char text[5 * 10000], line[10000];
  for (size_t length = 1900; length < 9000; length += length < 2040 || length > 2060 ? 97 : 1) {
    memset(line, 'x', sizeof line);
    memcpy(line, "50 24 0:40 / /", 14);
    strcpy(line + length, "35 24 0:30 / /tail rw - cgroup2 cgroup2 rw"); /* no line of its own */
    snprintf(text, sizeof text, "%s\n%s - cgroup2 cgroup2 rw\n%s\n" MOUNT_V2 "%s", line, line, line, line);
    tree_begin("0::/a\n", text);
    put("/sys/fs/cgroup/a/memory.max", "5000\n");
    put("/tail/a/memory.max", "1\n");
    struct os_memory_limits limits = limits_here();
    assert_true(limits.max_bytes == 5000);
  }
  /* A group whose name does not fit. Names of 250 bytes. */
  memset(line, 'y', sizeof line);
  for (unsigned i = 0; i < 10; i++)
    line[i * 250] = '/';
  for (unsigned names = 1; names < 10; names++) {
    snprintf(text, sizeof text, "0::%.*s\n4:memory:/a\n", (int)(names * 250), line);
    tree_begin(text, MOUNT_V1 MOUNT_V2);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "6000\n");
    snprintf(text, sizeof text, "/sys/fs/cgroup%.*s/memory.max", (int)(names * 250), line);
    put(text, "5000\n");
    assert_true(limits_here().max_bytes == (names * 250 < 1024 ? 5000 : 6000));
  }
}

UNIT_TEST_BETWEEN(what_is_missing_is_no_limit, NULL, forget_tree) {
  tree_begin(NULL, NULL);
  expect(NONE, NONE);
  tree_begin(NULL, PROC MOUNT_V2);
  with("/sys/fs/cgroup/memory.max", "1\n", NONE, NONE);
  tree_begin("", PROC MOUNT_V2);
  with("/sys/fs/cgroup/memory.max", "1\n", NONE, NONE);
  tree_begin("0::/a\n", "");
  with("/sys/fs/cgroup/a/memory.max", "1\n", NONE, NONE);
  tree_begin("0:\n0::\n:::\n\n0::a\n::/a\n0:x:/a\n1::/a\nx0::/a\n", MOUNT_V2);
  put("/sys/fs/cgroup/a/memory.max", "1\n");
  with("/sys/fs/cgroup/memory.max", "1\n", NONE, NONE);
  tree_begin("0::/a\n", "35\n35 24 0:30\n35 24 0:30 / /sys/fs/cgroup\n35 24 0:30 / /sys/fs/cgroup rw -\n"
                        "35 24 0:30 / /sys/fs/cgroup rw - \n35 24 0:30 / /sys/fs/cgroup rw - cgroup\n"
                        "35 24 0:30 / /sys/fs/cgroup rw - cgroup2x cgroup2 rw\n"
                        "35 24 0:30 / sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
                        "35 24 0:30 none /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n"
                        "35 24 0:30 net:[40265] /sys/fs/cgroup rw - nsfs nsfs rw\n");
  with("/sys/fs/cgroup/a/memory.max", "1\n", NONE, NONE);
  /* A folder where a file should be, and the other way round. */
  tree_begin("0::/a/b\n", MOUNT_V2);
  put("/sys/fs/cgroup/a/b/memory.max/file", "1\n");
  with("/sys/fs/cgroup/a/memory.max", "900\n", 900, NONE);
  tree_begin("0::/a/b\n", MOUNT_V2);
  put("/sys/fs/cgroup/a", "1\n");
  with("/sys/fs/cgroup/memory.max", "800\n", 800, NONE);
  /* The group was removed, those above it still hold. */
  tree_begin("0::/a/gone (deleted)\n", MOUNT_V2);
  with("/sys/fs/cgroup/a/memory.max", "700\n", 700, NONE);
}

UNIT_TEST_BETWEEN(without_mountinfo_the_usual_place, NULL, forget_tree) {
  tree_begin("4:memory:/one\n0::/two\n", NULL);
  with("/sys/fs/cgroup/memory/one/memory.limit_in_bytes", "700\n", 700, NONE);
  put("/sys/fs/cgroup/two/memory.max", "600\n");
  with("/sys/fs/cgroup/memory.high", "500\n", 600, 500);
}

UNIT_TEST_BETWEEN(a_hidden_mount_does_no_harm, NULL, forget_tree) {
  tree_begin("0::/a\n", "34 24 0:30 / /hidden rw - cgroup2 cgroup2 rw\n" MOUNT_V2
                        "34 24 0:30 /else /else rw - cgroup2 cgroup2 rw\n" MOUNT_V2);
  put("/sys/fs/cgroup/a/memory.max", "700\n");
  put("/else/a/memory.max", "1\n");
  with("/else/memory.max", "1\n", 700, NONE);
}

UNIT_TEST_BETWEEN(swap_comes_on_top, NULL, forget_tree) {
  tree_begin("0::/a/b\n", MOUNT_V2);
  put("/proc/meminfo", "MemTotal:       16384 kB\nSwapTotal:       1024 kB\nSwapFree:        5 kB\n");
  expect_all(NONE, NONE, 0); /* no bound to be beyond */
  with_swap("/sys/fs/cgroup/a/b/memory.max", "700\n", 700, NONE, MIB);
  with_swap("/sys/fs/cgroup/a/b/memory.swap.max", "max\n", 700, NONE, MIB);
  with_swap("/sys/fs/cgroup/a/memory.swap.max", "5000\n", 700, NONE, 5000);
  with_swap("/sys/fs/cgroup/a/b/memory.swap.max", "0\n", 700, NONE, 0);
  tree_begin("4:memory:/a\n", MOUNT_V1);
  put("/proc/meminfo", "SwapTotal:1024 kB");
  with_swap("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10000\n", 10000, NONE, MIB);
  with_swap("/sys/fs/cgroup/memory/a/memory.memsw.limit_in_bytes", "12000\n", 10000, NONE, 2000);
  with_swap("/sys/fs/cgroup/memory/memory.memsw.limit_in_bytes", "9000\n", 10000, NONE, 0);
  static const char *const odd[] = {"",
                                    "SwapTotal:\n",
                                    "SwapTotal: -5 kB\n",
                                    "XSwapTotal: 5 kB\n",
                                    "SwapTotal: 99999999999999999999 kB\n",
                                    "SwapTotal: 4611686018427387904 kB\n"};
  for (unsigned i = 0; i < sizeof odd / sizeof odd[0]; i++) {
    tree_begin("4:memory:/a\n", MOUNT_V1);
    put("/sys/fs/cgroup/memory/a/memory.limit_in_bytes", "10000\n");
    with_swap("/proc/meminfo", odd[i], 10000, NONE, 0);
  }
}

/* Files of random bytes, and good ones with a few bytes altered: an answer comes, whatever it is. */
UNIT_TEST_BETWEEN(any_bytes_are_survived, NULL, forget_tree) {
  static const char *const names[] = {"/proc/self/cgroup", "/proc/self/mountinfo", "/proc/meminfo",
                                      "/sys/fs/cgroup/a/memory.max"};
  static const char *const texts[] = {"4:memory:/one\n0::/a\n", PROC MOUNT_V1 MOUNT_V2, "SwapTotal: 5 kB\n", "500\n"};
  static const char common[] = "/ \n:\\0123-,.x";
  static char bytes[6000];
  uint64_t seed = UNIT_SEED;
  tree_begin(NULL, NULL);
  for (unsigned round = 0; round < 500; round++) {
    for (unsigned i = 0; i < 4; i++) {
      size_t length = strlen(texts[i]);
      memcpy(bytes, texts[i], length);
      if (test_random(&seed) % 8 == 0)
        length = test_random(&seed) % sizeof bytes;
      for (size_t changes = test_random(&seed) % (length > 500 ? length : 4); changes > 0 && length > 0; changes--)
        bytes[test_random(&seed) % length] =
            test_random(&seed) % 4 ? common[test_random(&seed) % (sizeof common - 1)] : (char)test_random(&seed);
      put_bytes(names[i], bytes, length);
    }
    struct os_memory_limits limits = limits_here();
    assert_true(limits.max_bytes != NONE || limits.swap_bytes == 0);
    assert_int_equal(watch_again(), -1);
  }
}

UNIT_TEST_BETWEEN(a_folder_whose_path_does_not_fit_is_none, NULL, forget_tree) {
  char group[1010], point[1500], names[sizeof group + 8], mounts[sizeof point + 80];
  memset(group, 'g', sizeof group);
  memset(point, 'z', sizeof point);
  group[0] = point[0] = '/';
  group[sizeof group - 1] = point[sizeof point - 1] = 0;
  snprintf(names, sizeof names, "0::%s\n", group);
  snprintf(mounts, sizeof mounts, "35 24 0:30 / %s rw - cgroup2 cgroup2 rw\n", point);
  tree_begin(names, mounts);
  struct os_memory_limits limits = limits_here();
  assert_true(limits.max_bytes == NONE && limits.high_bytes == NONE && limits.swap_bytes == 0);
  assert_int_equal(watch_again(), -1);
}

/* Pressure: an ordinary file takes what a pressure file would be told. */

#define TRIGGER "some 150000 1000000"
#define TRIGGER_UNPRIVILEGED "some 300000 2000000"

static void expect_armed(const char *name, const char *trigger) {
  char path[4096], text[64] = {0};
  int free_before = lowest_free_descriptor();
  int fd = watch_again();
  if (trigger == NULL) {
    assert_int_equal(fd, -1);
  } else {
    assert_int_equal(fcntl(fd, F_GETFD), FD_CLOEXEC);
    path_in_root(path, sizeof path, name);
    FILE *file = UNIT_GOT(fopen(path, "r"));
    assert_int_equal(fread(text, 1, sizeof text, file), strlen(trigger) + 1);
    fclose(file);
    assert_string_equal(text, trigger);
    errno = 4711;
    os_pressure_in_child();
    assert_int_equal(errno, 4711);
    assert_int_equal(watched(), -1);
  }
  assert_int_equal(lowest_free_descriptor(), free_before);
  assert_int_equal(world.inherited, 0);
}

#define MACHINE "/proc/pressure/memory"
#define GROUP "/sys/fs/cgroup/a/memory.pressure"

UNIT_TEST_BETWEEN(pressure_of_the_group_comes_first, NULL, forget_tree) {
  tree_begin("4:memory:/x\n0::/a\n", MOUNT_V1 MOUNT_V2 MOUNT_V2);
  expect_armed(NULL, NULL);
  put(MACHINE, "");
  put("/sys/fs/cgroup/memory/x/memory.pressure", "");
  put("/sys/fs/cgroup/memory.pressure", "");
  expect_armed(MACHINE, TRIGGER);
  put(MACHINE, "");
  put(GROUP, "");
  expect_armed(GROUP, TRIGGER);
  put(GROUP, "");
  world.interrupt = true;
  expect_armed(GROUP, TRIGGER);
  world.interrupt = false;
  put(GROUP, "");
  world.refused_writes = 1; /* without privileges */
  expect_armed(GROUP, TRIGGER_UNPRIVILEGED);
  put(GROUP, "");
  world.refused_writes = 4; /* a group of others, seen in two mounts */
  expect_armed(MACHINE, TRIGGER);
  put(MACHINE, "");
  world.refused_writes = 5;
  expect_armed(MACHINE, TRIGGER_UNPRIVILEGED);
  world.refused_writes = 6;
  expect_armed(NULL, NULL);
  assert_int_equal(world.refused_writes, 0);
  tree_begin(NULL, NULL); /* nothing is known of groups */
  put(MACHINE, "");
  expect_armed(MACHINE, TRIGGER);
}

UNIT_TEST_BETWEEN(pressure_came_or_did_not_or_its_group_is_gone, NULL, forget_tree) {
  tree_begin(NULL, NULL);
  assert_int_equal(watch_again(), -1);
  assert_false(os_pressure_came());
  put(MACHINE, "");
  assert_true(watch_again() >= 0);
  world.polled_ms = -1;
  assert_false(os_pressure_came());
  assert_int_equal(world.polled_ms, 0); /* it does not wait */
  world.interrupt = true;
  world.interrupted = false;
  assert_false(os_pressure_came());
  world.interrupt = false;
  assert_true(watched() >= 0);
  static const struct {
    short events;
    bool came, is_gone;
  } rows[] = {
      {0, false, false},      {POLLPRI, true, false},  {POLLPRI | POLLERR, false, true}, /* its group was removed */
      {POLLERR, false, true}, {POLLNVAL, false, true}, {POLLHUP, false, true}};
  for (unsigned i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_true(watch_again() >= 0);
    world.scripted_polls = 1;
    world.scripted_events = rows[i].events;
    errno = 4711;
    assert_int_equal(os_pressure_came(), rows[i].came);
    assert_int_equal(errno, 4711);
    assert_int_equal(world.scripted_polls, 0);
    assert_int_equal(watched() < 0, rows[i].is_gone);
  }
}

/* The program closes the descriptor and gets its number for a file of its own, which stays open. */
UNIT_TEST_BETWEEN(a_file_of_the_program_is_no_pressure_file, NULL, forget_tree) {
  tree_begin(NULL, NULL);
  put(MACHINE, "");
  int fd = watch_again(), own = open("/dev/null", O_RDONLY);
  assert_true(fd >= 0);
  assert_int_equal(dup2(own, fd), fd);
  world.scripted_polls = 1;
  world.scripted_events = POLLPRI;
  assert_false(os_pressure_came());
  world.scripted_polls = 0;
  os_pressure_in_child();
  assert_int_equal(watched(), fd);
  close(fd);
  close(own);
}

UNIT_TEST_BETWEEN(this_machine, NULL, forget_tree) {
  struct os_memory_limits limits;
  int free_before = lowest_free_descriptor();
  os_memory_limits_read(&limits);
  int fd = watch_again();
  print_message("here: max %zu, high %zu, swap %zu, pressure %s\n", limits.max_bytes, limits.high_bytes,
                limits.swap_bytes, fd >= 0 ? "offered" : "not offered");
  assert_true(limits.max_bytes > MIB); /* or we would not run */
  os_pressure_came();
  assert_int_equal(watched(), fd);
  os_pressure_in_child();
  assert_int_equal(lowest_free_descriptor(), free_before);
}

UNIT_MAIN()
