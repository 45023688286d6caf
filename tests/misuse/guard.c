/* Guarded blocks (docs/guard.md), each of the program's (HAKMEM_GUARD=1): every kind of misuse ends the program with
 * the exact sentence, once; handlers of the program see what they would see without; and what is no misuse goes on.
 *
 *   guard          all
 *   guard control  expects another sentence: must fail */
#include <setjmp.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>

#include <hakmem/hakmem.h>
#include <hakmem/stats.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define PAGE 4096 /* a multiple of 16, at most a page: its block ends at a page's end or begins at its start */
#define SEEN 0x5e
#define TOLD_FD 100 /* of the file that parent and child map */

/* What a child tells its parent, besides its output. */
static struct {
  unsigned char *volatile block;
  volatile int handled;
} *told;

static unsigned char *block_of(size_t size) {
  unsigned char *block = test_opaque(t_malloc(size));
  CHECK(block != NULL && t_usable_size(block) == size);
  told->block = block;
  return block;
}

static size_t page;
static void touch(volatile unsigned char *at) { *at = 0; } /* which no filler is */
static int look(const volatile unsigned char *at) { return *at; }

static void overflow_write(void) { touch(block_of(page) + page); }
static void overflow_read(void) { look(block_of(page) + page); }
static void underflow_read(void) { look(block_of(page) - 1); }
static void after_free_write(void) {
  unsigned char *block = block_of(100);
  t_free(test_opaque(block));
  touch(block + 5);
}
static void after_realloc_read(void) {
  unsigned char *block = block_of(100), *moved = test_opaque(t_realloc(test_opaque(block), 101));
  CHECK(moved != block);
  look(block);
}
static void double_free(void) {
  unsigned char *block = block_of(100);
  t_free(test_opaque(block));
  t_free(test_opaque(block));
}
static void inside_free(void) { t_free(test_opaque(block_of(100) + 16)); }
static void realloc_of_freed(void) {
  unsigned char *block = block_of(100);
  t_free(test_opaque(block));
  look(test_opaque(t_realloc(test_opaque(block), 200)));
}
/* Of a block that ends within a page, the bytes behind and before are seen at its free. */
static void written_beyond(void) {
  unsigned char *block;
  do
    block = block_of(100);
  while ((uintptr_t)block % page != 0); /* at its pages' start */
  touch(block + 102);
  t_free(test_opaque(block));
}
static void written_before(void) {
  unsigned char *block;
  do
    block = block_of(100);
  while ((uintptr_t)block % page == 0);
  touch(block - 1);
  t_free(test_opaque(block));
}
static void in_child_of_fork(void) {
  unsigned char *block = block_of(100);
  pid_t child = test_fork();
  int status = 0;
  if (child == 0) {
    t_free(test_opaque(block));
    touch(block);
  }
  CHECK(waitpid(child, &status, 0) == child && WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  touch(block); /* the parent's is live */
  _exit(SEEN);
}
static void *free_in_thread(void *block) {
  t_free(test_opaque(block));
  return NULL;
}
static void freed_by_thread(void) {
  unsigned char *block = block_of(100);
  test_thread_run(free_in_thread, block);
  touch(block);
}

/* Threads that misuse memory at the same time: the program ends after the report of the first. */
static pthread_barrier_t together;
static void *free_twice(void *ignored) {
  unsigned char *block = test_opaque(t_malloc(100));
  t_free(test_opaque(block));
  pthread_barrier_wait(&together);
  t_free(test_opaque(block));
  return NULL;
}
static void several_threads(void) {
  enum { THREADS = 8 };
  pthread_t threads[THREADS];
  pthread_barrier_init(&together, NULL, THREADS);
  for (int i = 0; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, free_twice, NULL) == 0);
  for (int i = 0; i < THREADS; i++)
    pthread_join(threads[i], NULL);
}

/* --- handlers --- */

static sigjmp_buf back;
static void install(void (*handler)(int, siginfo_t *, void *), int flags) {
  struct sigaction action = {.sa_sigaction = handler, .sa_flags = SA_SIGINFO | flags};
  sigaddset(&action.sa_mask, SIGUSR1);
  CHECK(sigaction(SIGSEGV, &action, NULL) == 0);
}
static void exit_seen(int number, siginfo_t *info, void *context) {
  sigset_t blocked;
  pthread_sigmask(SIG_BLOCK, NULL, &blocked);
  bool has_mask = sigismember(&blocked, SIGUSR1) && sigismember(&blocked, SIGSEGV);
  _exit(number == SIGSEGV && context && has_mask && info->si_addr == told->block + page ? SEEN : 1);
}
static void jump_back(int number, siginfo_t *info, void *context) {
  told->handled++;
  siglongjmp(back, 1);
}
static void fault_again(int number, siginfo_t *info, void *context) {
  told->handled++;
  touch(told->block + page); /* SIGSEGV is blocked here: the kernel ends the program */
}
/* A handler that was there when guarding started is called after the report. */
static void overflow_behind(void (*handler)(int, siginfo_t *, void *), int flags) {
  install(handler, flags);
  CHECK(hak_guard_start(1) == 0);
  touch(block_of(page) + page);
}
static void handler_before(void) {
  signal(SIGSEGV, SIG_DFL);
  overflow_behind(exit_seen, 0);
}
/* One that is installed later is called alone. */
static void handler_after(void) {
  install(exit_seen, 0);
  touch(block_of(page) + page);
}
static void handler_that_jumps(void) {
  install(jump_back, 0);
  CHECK(hak_guard_start(1) == 0);
  for (volatile int i = 0; i < 3; i++)
    if (sigsetjmp(back, 1) == 0)
      touch(block_of(page) + page);
  _exit(told->handled == 3 ? SEEN : 1);
}
static void handler_that_faults(void) { overflow_behind(fault_again, 0); }
/* One for a single signal: the second ends the program. */
static void return_once(int number, siginfo_t *info, void *context) {
  if (told->handled++ > 0)
    _exit(1);
}
static void handler_for_one(void) { overflow_behind(return_once, (int)SA_RESETHAND); }
static unsigned char alternate[1 << 16];
static void exit_if_alternate(int number, siginfo_t *info, void *context) {
  unsigned char here;
  volatile unsigned char *at = &here;
  _exit(at > alternate && at < alternate + sizeof alternate ? SEEN : 1);
}
static void handler_on_own_stack(void) {
  stack_t stack = {.ss_sp = alternate, .ss_size = sizeof alternate};
  CHECK(sigaltstack(&stack, NULL) == 0);
  overflow_behind(exit_if_alternate, SA_ONSTACK);
}
/* One that calls the handler that it replaced, which was ours; the next of ours replaces this one. */
static struct sigaction replaced;
static void call_replaced(int number, siginfo_t *info, void *context) {
  if (told->handled++ > 0)
    _exit(1);
  replaced.sa_sigaction(number, info, context);
}
static void handler_that_passes_on(void) {
  CHECK(sigaction(SIGSEGV, NULL, &replaced) == 0);
  overflow_behind(call_replaced, 0);
}
/* A fault that is not ours, and signals that were sent. */
static void other_fault(void) { touch(test_opaque((void *)64)); } /* UBSan looks for NULL itself */
static void sent_and_ignored(void) {
  signal(SIGSEGV, SIG_IGN);
  CHECK(hak_guard_start(1) == 0);
  raise(SIGSEGV);
  _exit(SEEN);
}
static void sent(void) { raise(SIGSEGV); }

/* --- no misuse --- */

static void figures_and_slots(void) {
  enum { MANY = 600 };
  static void *blocks[MANY];
  struct hak_stats before, full, after;
  CHECK(hak_stats_get(&before) == 0);
  for (int i = 0; i < MANY; i++)
    blocks[i] = t_malloc(50);
  CHECK(hak_stats_get(&full) == 0);
  CHECK_SAY(full.guarded_blocks > 100 && full.guarded_blocks <= 128, "%ju live", (uintmax_t)full.guarded_blocks);
  CHECK(full.guarded_bytes >= full.guarded_blocks * PAGE && full.guarded_refused > before.guarded_refused);
  t_free_all(blocks, MANY);
  CHECK(hak_stats_get(&after) == 0);
  CHECK_SAY(after.guarded_blocks <= before.guarded_blocks && after.guarded_bytes <= before.guarded_bytes, "%ju live",
            (uintmax_t)after.guarded_blocks);
  for (int i = 0; i < 300; i++) { /* a freed slot waits */
    static void *recent[60];
    void *block = t_malloc(50);
    for (int k = 0; k < 60; k++)
      CHECK(recent[k] != block);
    recent[i % 60] = block;
    t_free(test_opaque(block));
  }
  CHECK(hak_guard_stop() == 0);
  for (int i = 0; i < 1000; i++)
    t_free(t_malloc(50)); /* the thread follows */
  CHECK(hak_stats_get(&before) == 0);
  t_free(t_malloc(50));
  CHECK(hak_stats_get(&after) == 0 && after.guarded_allocations == before.guarded_allocations);
  _exit(SEEN);
}
static bool is_secure(void) {
  const char *preset = getenv("HAKMEM_PROFILE");
  return preset && strcmp(preset, "secure") == 0;
}
static uint64_t guarded_so_far(void) {
  struct hak_stats stats;
  CHECK(hak_stats_get(&stats) == 0);
  return stats.guarded_allocations;
}
static void with_a_profile(void) {
  struct hak_stats stats;
  CHECK(hak_profile_start(1) == 0);
  t_free(t_malloc(50));
  uint64_t guarded = guarded_so_far();
  unsigned char *block = block_of(100);
  CHECK(hak_stats_get(&stats) == 0 && stats.profile_samples > 0);
  CHECK(stats.guarded_allocations - guarded == !is_secure()); /* there the profile needs the picks for itself */
  uint64_t samples = stats.profile_samples;
  t_free(test_opaque(block));
  CHECK(hak_stats_get(&stats) == 0);
  CHECK_SAY(stats.profile_samples == samples - 1, "%ju samples", (uintmax_t)stats.profile_samples);
  CHECK(hak_profile_stop() == 0);
  _exit(SEEN);
}

/* Blocks of the program's heaps are no samples. */
static void heaps_have_none(void) {
  hak_heap *heap = hak_heap_new(0);
  uint64_t before = guarded_so_far();
  CHECK((heap == NULL) == is_secure());
  for (int i = 0; heap != NULL && i < 100; i++) {
    CHECK(hak_heap_malloc(heap, 100) != NULL && hak_heap_malloc(heap, 50000) != NULL);
    CHECK(guarded_so_far() == before);
  }
  CHECK(heap == NULL || hak_heap_destroy(heap) == 0);
  t_free(block_of(100));
  CHECK(guarded_so_far() > before);
  _exit(SEEN);
}
/* Little address space: there are no samples, and the program is told. */
static void little_space(void) {
  t_free(test_opaque(t_malloc(100)));
  CHECK(guarded_so_far() == 0);
  _exit(SEEN);
}

/* %p: the block; %q: page bytes behind it; %r: one byte before; %5, %x, %w: 5, 16 and 102 bytes in. */
static const struct crime {
  const char *name;
  void (*commit)(void);
  const char *sentence; /* NULL: none */
  int end;              /* a signal, or SEEN */
} crimes[] = {
    {"overflow_write", overflow_write, "overflow: write at %q, 1 byte beyond the end of block %p of %n bytes", SIGSEGV},
    {"overflow_read", overflow_read, "overflow: read at %q, 1 byte beyond the end of block %p of %n bytes", SIGSEGV},
    {"underflow_read", underflow_read, "underflow: read at %r, 1 byte before block %p of %n bytes", SIGSEGV},
    {"after_free_write", after_free_write, "use after free: write at %5, at byte 5 of block %p of 100 bytes", SIGSEGV},
    {"after_realloc_read", after_realloc_read, "use after free: read at %p, at byte 0 of block %p of 100 bytes",
     SIGSEGV},
    {"double_free", double_free, "double free of block %p of 100 bytes", SIGABRT},
    {"inside_free", inside_free, "free of %x, at byte 16 of block %p of 100 bytes", SIGABRT},
    {"realloc_of_freed", realloc_of_freed, "double free of block %p of 100 bytes", SIGABRT},
    {"written_beyond", written_beyond,
     "overflow: written 3 bytes beyond the end of block %p of 100 bytes, seen at its free", SIGABRT},
    {"written_before", written_before, "underflow: written 1 byte before block %p of 100 bytes, seen at its free",
     SIGABRT},
    {"in_child_of_fork", in_child_of_fork, "use after free: write at %p, at byte 0 of block %p of 100 bytes", SEEN},
    {"freed_by_thread", freed_by_thread, "use after free: write at %p, at byte 0 of block %p of 100 bytes", SIGSEGV},
    {"several_threads", several_threads, "double free of block", SIGABRT},
    {"handler_before", handler_before, "overflow: write at %q, 1 byte beyond the end of block %p of %n bytes", SEEN},
    {"handler_after", handler_after, NULL, SEEN},
    {"handler_that_jumps", handler_that_jumps, "overflow", SEEN},
    {"handler_that_faults", handler_that_faults, "overflow", SIGSEGV},
    {"handler_for_one", handler_for_one, "overflow", SIGSEGV},
    {"handler_on_own_stack", handler_on_own_stack, "overflow", SEEN},
    {"handler_that_passes_on", handler_that_passes_on, "overflow", SIGSEGV},
    {"other_fault", other_fault, NULL, SIGSEGV},
    {"sent_and_ignored", sent_and_ignored, NULL, SEEN},
    {"sent", sent, NULL, SIGSEGV},
    {"figures_and_slots", figures_and_slots, NULL, SEEN},
    {"with_a_profile", with_a_profile, NULL, SEEN},
    {"heaps_have_none", heaps_have_none, NULL, SEEN},
#if !TEST_SANITIZED /* which need more */
    {"enough_space", after_free_write, "use after free: write at %5", SIGSEGV},
    {"little_space", little_space, "HAKMEM_GUARD has no samples while memory is short", SEEN},
#endif
};

static void limit_space(const struct crime *crime) {
  rlim_t mib = strcmp(crime->name, "enough_space") == 0 ? 1024 : strcmp(crime->name, "little_space") == 0 ? 512 : 0;
  struct rlimit limit = {mib << 20, mib << 20};
  CHECK(mib == 0 || setrlimit(RLIMIT_AS, &limit) == 0);
}

static void expect_sentence(char *out, size_t bytes, const char *sentence) {
  size_t length = (size_t)snprintf(out, bytes, "hakmem: ");
  for (const char *c = sentence; *c && length + 24 < bytes; c++) {
    uintptr_t block = (uintptr_t)told->block;
    if (*c != '%') {
      out[length++] = *c;
      continue;
    }
    c++;
    if (*c == 'n')
      length += (size_t)sprintf(out + length, "%zu", page);
    else
      length += (size_t)sprintf(out + length, "0x%jx",
                                (uintmax_t)(block +
                                            (*c == 'q'   ? page
                                             : *c == '5' ? 5
                                             : *c == 'x' ? 16
                                                         : 0) -
                                            (*c == 'r')));
  }
  out[length] = 0;
}

/* A stack names this program, with the path by which `hak doctor --crash` finds it. */
static void check_stacks(const char *output, const struct crime *crime) {
  char path[4096], line[4200];
  ssize_t length = readlink("/proc/self/exe", path, sizeof path - 1);
  CHECK(length > 0);
  path[length] = 0;
  snprintf(line, sizeof line, "hakmem:     %s+0x", path);
  const char *allocated = strstr(output, "hakmem:   allocated by thread ");
  CHECK_SAY(allocated && strstr(allocated, line), "%s: no stack of the allocation: %s", crime->name, output);
  const char *here = strstr(output, "hakmem:   accessed by thread ");
  here = here ? here : strstr(output, "hakmem:   freed by thread ");
  CHECK_SAY(here && strstr(here, line), "%s: no stack of the misuse: %s", crime->name, output);
  const char *freed = strstr(output, "hakmem:   freed by thread ");
  CHECK_SAY(strstr(output, "use after free") == NULL || (freed && freed > here), "%s: no stack of the free",
            crime->name);
}

/* A sentence goes to the stderr of the start. */
static void commit_in_program(void *argument) {
  const struct crime *crime = argument;
  limit_space(crime);
  execl("/proc/self/exe", "guard", "--commit", crime->name, (char *)NULL);
  _exit(1);
}

static void judge(const struct crime *crime, bool is_control) {
  static char output[1 << 16], wanted[512];
  told->handled = 0;
  int status = test_child_says(commit_in_program, (void *)(uintptr_t)crime, output, sizeof output);
  CHECK_SAY(crime->end == SEEN ? WIFEXITED(status) && WEXITSTATUS(status) == SEEN
                               : WIFSIGNALED(status) && WTERMSIG(status) == crime->end,
            "%s: status 0x%x: %s", crime->name, status, output);
  if (crime->sentence == NULL) {
    CHECK_SAY(output[0] == 0, "%s: %s", crime->name, output);
    return;
  }
  expect_sentence(wanted, sizeof wanted, is_control ? "nothing" : crime->sentence);
  CHECK_SAY(strncmp(output, wanted, strlen(wanted)) == 0, "%s: '%s' instead of '%s'", crime->name, output, wanted);
  CHECK_SAY(strstr(output + 1, "hakmem: overflow") == NULL, "%s: reported twice", crime->name);
  if (crime->commit != little_space)
    check_stacks(output, crime);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  page = (size_t)sysconf(_SC_PAGESIZE);
  bool is_child = argc > 2 && strcmp(argv[1], "--commit") == 0;
  if (!is_child) {
    int fd = memfd_create("told", 0);
    CHECK(fd >= 0 && ftruncate(fd, PAGE) == 0 && dup2(fd, TOLD_FD) == TOLD_FD);
  }
  told = mmap(NULL, sizeof *told, PROT_READ | PROT_WRITE, MAP_SHARED, TOLD_FD, 0);
  CHECK(told != MAP_FAILED);
  for (size_t i = 0; is_child && i < sizeof crimes / sizeof *crimes; i++)
    if (strcmp(crimes[i].name, argv[2]) == 0) {
      crimes[i].commit();
      return 0;
    }
  for (size_t i = 0; i < sizeof crimes / sizeof *crimes; i++)
    judge(&crimes[i], argc > 1 && strcmp(argv[1], "control") == 0);
}
