/* filter MODE: a program that a seccomp filter lets make the calls of a program on libc's malloc, and kills for any
 * other one, grows to 64 MiB and shrinks, over and over.
 *
 *   later      the filter comes, by libseccomp, when the heap has been big
 *   early      when it is small
 *   prctl, syscall   the same without libseccomp
 *   fork       and then it forks
 *   strict     prctl's strict mode (read, write, exit): what is mapped is given and taken
 *   inherited  the filter is there before the program; its own are installed in it, too
 *   threads    the same for a program that has threads, sleeps, forks, and ends its main thread first
 *   chroot     the same for a program that then changes its root to a folder without /proc; as root
 *   groups     the same for a user of many groups, whose list is long in /proc/PID/status; as root
 *   control    a call that the filter does not let through must end the process
 */
#include <grp.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#ifdef HAVE_LIBSECCOMP
#include <seccomp.h>
#endif

#include "../child.h"

#define BIG ((size_t)64 << 20)
#define PIECE ((size_t)64 << 10)
#define PIECES (BIG / PIECE)
#define SMALL_COUNT 20000

static void *pieces[PIECES];
static void *small[SMALL_COUNT];

static void grow_and_shrink(size_t bytes) {
  size_t count = bytes / PIECE;
  for (size_t i = 0; i < count; i++) {
    pieces[i] = CHECK_GOT(test_opaque(malloc(PIECE - 100)));
    memset(pieces[i], 1, PIECE - 100);
  }
  for (size_t i = 0; i < SMALL_COUNT; i++) {
    small[i] = CHECK_GOT(test_opaque(malloc(16 + i % 900)));
    memset(small[i], 2, 16);
  }
  char *mapping = CHECK_GOT(test_opaque(malloc(bytes * 3 / 4)));
  memset(mapping, 3, bytes * 3 / 4);
  mapping = realloc(mapping, bytes);
  CHECK(mapping != NULL && mapping[bytes * 3 / 4 - 1] == 3);
  free(mapping);
  for (size_t i = 0; i < SMALL_COUNT; i++)
    free(small[i]);
  for (size_t i = 0; i < count; i++)
    free(pieces[i]);
}

/* What a program on libc's malloc asks for its memory, and what this one does besides. */
static const int memory_calls[] = {
    SYS_mmap,    SYS_munmap,       SYS_mremap,        SYS_mprotect,       SYS_madvise, SYS_futex,
    SYS_brk,     SYS_write,        SYS_exit_group,    SYS_rt_sigprocmask, SYS_exit,    SYS_prctl,
    SYS_seccomp, SYS_rt_sigreturn, SYS_clock_gettime, SYS_getrandom,
};
/* To load and start a program, which may change its root. */
static const int start_calls[] = {
    SYS_chroot,     SYS_chdir,      SYS_execve,          SYS_openat,          SYS_read, SYS_pread64,   SYS_close,
    SYS_newfstatat, SYS_fstat,      SYS_set_tid_address, SYS_set_robust_list, SYS_rseq, SYS_prlimit64, SYS_faccessat,
#ifdef __x86_64__
    SYS_access,     SYS_arch_prctl, SYS_readlink,
#endif
};

/* Of libc's fork, and of who waits for the child. */
static const int fork_calls[] = {SYS_clone, SYS_clone3, SYS_set_robust_list, SYS_wait4};
static int forks;
/* Of its threads, besides. */
static const int thread_calls[] = {SYS_rt_sigaction, SYS_sched_getaffinity, SYS_clock_nanosleep};
static int threads;

#define PROGRAM_MAX 128
static struct sock_filter program[PROGRAM_MAX];
static unsigned short program_length;

static void add(struct sock_filter statement) {
  CHECK(program_length < PROGRAM_MAX);
  program[program_length++] = statement;
}

static void let_through(const int *calls, size_t count) {
  for (size_t i = 0; i < count; i++) {
    add((struct sock_filter)BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (unsigned)calls[i], 0, 1));
    add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW));
  }
}

#define COUNT(array) (sizeof(array) / sizeof *(array))

static struct sock_fprog filter_of_own(bool is_for_start) {
  program_length = 0;
  add((struct sock_filter)BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)));
  let_through(memory_calls, COUNT(memory_calls));
  if (forks)
    let_through(fork_calls, COUNT(fork_calls));
  if (threads)
    let_through(thread_calls, COUNT(thread_calls));
  if (is_for_start)
    let_through(start_calls, COUNT(start_calls));
  add((struct sock_filter)BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS));
  return (struct sock_fprog){.len = program_length, .filter = program};
}

static void filter_by_prctl(void) {
  struct sock_fprog filter = filter_of_own(false);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, NULL) == -1 && errno == EFAULT); /* as one asks for support */
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
}

static void filter_by_syscall(void) {
  struct sock_fprog filter = filter_of_own(false);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0);
  CHECK(syscall(SYS_seccomp, SECCOMP_SET_MODE_FILTER, 0, &filter) == 0);
}

static void filter_by_library(void) {
#ifdef HAVE_LIBSECCOMP
  scmp_filter_ctx context = seccomp_init(SCMP_ACT_KILL_PROCESS);
  CHECK(context != NULL);
  for (size_t i = 0; i < COUNT(memory_calls); i++)
    CHECK(seccomp_rule_add(context, SCMP_ACT_ALLOW, memory_calls[i], 0) == 0);
  CHECK(seccomp_load(context) == 0);
  seccomp_release(context);
#else
  puts("built without libseccomp (libseccomp-dev)");
  exit(77);
#endif
}

static void twice(void) {
  grow_and_shrink(BIG);
  grow_and_shrink(BIG);
}

static void early(void) {
  filter_by_library();
  twice();
}
static void later(void) {
  twice();
  filter_by_library();
  twice();
}
static void by_prctl(void) {
  filter_by_prctl();
  twice();
}
static void by_syscall(void) {
  filter_by_syscall();
  twice();
}
static void forked(void) {
  forks = 1;
  twice();
  filter_by_prctl();
  TEST_IN_CHILD { twice(); }
  twice();
}
static void strict(void) {
  twice(); /* mapped, and free */
  CHECK(prctl(PR_SET_SECCOMP, SECCOMP_MODE_STRICT) == 0);
  for (int i = 0; i < 1000; i++)
    free(test_opaque(malloc(100 + (size_t)i)));
  syscall(SYS_exit, 0);
}
static void filtered_from_start(void) { twice(); }

static void *own_work(void *unused) {
  for (int i = 0; i < 2000; i++)
    free(test_opaque(malloc(1000 + (size_t)i * 100)));
  return unused;
}
static void *last_work(void *unused) {
  static const char done[] = "filter: ok\n";
  test_pause_ms(1500);
  if (write(1, done, sizeof done - 1) != (ssize_t)sizeof done - 1)
    _exit(1);
  return own_work(unused);
}

static void filtered_with_threads(void) {
  pthread_t thread;
  for (int round = 0; round < 2; round++) {
    CHECK(pthread_create(&thread, NULL, own_work, NULL) == 0);
    twice();
    CHECK(pthread_join(thread, NULL) == 0);
    test_pause_ms(2500); /* nothing is used for so long that the heap's own thread rests */
    TEST_IN_CHILD { twice(); }
  }
  twice();
  CHECK(pthread_create(&thread, NULL, last_work, NULL) == 0);
  pthread_exit(NULL); /* the process ends with last_work, although the heap's own thread is there */
}

static void filtered_elsewhere(void) {
  test_leave_proc();
  twice();
}

/* The program starts anew with a filter, in this mode. */
static int run_inherited(const char *program_path, const char *mode) {
  struct sock_fprog filter = filter_of_own(true);
  CHECK(prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 && prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0);
  execv(program_path, (char *[]){(char *)(uintptr_t)program_path, (char *)(uintptr_t)mode, NULL});
  return 1;
}

#define GROUPS 2000

static int run_of_many_groups(const char *program_path) {
  gid_t groups[GROUPS];
  for (unsigned i = 0; i < GROUPS; i++)
    groups[i] = 1000000000u + i;
  if (setgroups(GROUPS, groups) != 0) {
    puts("only root can take groups");
    return 77;
  }
  return run_inherited(program_path, "filtered");
}
static void control(void) {
  filter_by_prctl();
  syscall(SYS_getppid);
}

static const struct mode {
  const char *name;
  void (*run)(void);
} modes[] = {
    {"early", early},
    {"later", later},
    {"prctl", by_prctl},
    {"syscall", by_syscall},
    {"strict", strict},
    {"filtered", filtered_from_start},
    {"fork", forked},
    {"control", control},
    {"grow", twice},
    {"filtered-threads", filtered_with_threads},
    {"filtered-elsewhere", filtered_elsewhere},
};

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "";
  if (strcmp(mode, "inherited") == 0)
    return run_inherited(argv[0], "filtered");
  threads = forks = strcmp(mode, "threads") == 0;
  if (threads)
    return run_inherited(argv[0], "filtered-threads");
  if (strcmp(mode, "chroot") == 0)
    return run_inherited(argv[0], "filtered-elsewhere");
  if (strcmp(mode, "groups") == 0)
    return run_of_many_groups(argv[0]);
  for (size_t i = 0; i < COUNT(modes); i++)
    if (strcmp(modes[i].name, mode) == 0) {
      modes[i].run();
      static const char done[] = "filter: ok\n";
      return write(1, done, sizeof done - 1) != (ssize_t)sizeof done - 1;
    }
  return 1;
}
