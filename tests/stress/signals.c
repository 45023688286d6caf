/* Signal handlers that allocate and free, ten thousand times a second in each of several threads, while the threads do
 * the same: no block is given out twice, none loses its content. Handlers that end the process, and handlers that jump
 * out of malloc: the process lives, and stays small.
 *     signals [storm|leave|jump]   one of these alone
 *
 * Nothing is promised to a handler that interrupts the few instructions of the fast path, or of the second one where
 * allocations are counted (hak_malloc_split); there it does nothing. */
#include <dlfcn.h>
#include <elf.h>
#include <setjmp.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <ucontext.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#ifndef sigev_notify_thread_id /* glibc before 2.38 */
#define sigev_notify_thread_id _sigev_un._tid
#endif

#define THREADS 3
#define PERIOD_NS 100000
#define HANDLED_MIN 1000
#define FAST_PATH_BYTES 256 /* of code, from the first instruction of malloc and of free */

static uintptr_t program_counter(void *context) {
#if defined(__x86_64__)
  return (uintptr_t)((ucontext_t *)context)->uc_mcontext.gregs[REG_RIP];
#else
  return (uintptr_t)((ucontext_t *)context)->uc_mcontext.pc;
#endif
}

static uintptr_t split_begin, split_end; /* hak_malloc_split */

/* The symbol is not exported, so it is looked up in the file that malloc is in. The malloc of a control has none. */
static void find_split(void) {
  extern const char __ehdr_start[] __attribute__((visibility("hidden")));
  Dl_info info;
  struct stat file;
  if (dladdr(test_opaque((void *)(uintptr_t)t_malloc), &info) == 0) /* a static program */
    info = (Dl_info){.dli_fname = "/proc/self/exe", .dli_fbase = (void *)(uintptr_t)__ehdr_start};
  int fd = open(info.dli_fname, O_RDONLY | O_CLOEXEC);
  CHECK(fd >= 0 && fstat(fd, &file) == 0);
  const char *bytes = mmap(NULL, (size_t)file.st_size, PROT_READ, MAP_PRIVATE, fd, 0);
  CHECK(bytes != MAP_FAILED);
  const Elf64_Ehdr *head = (const void *)bytes;
  const Elf64_Shdr *sections = (const void *)(bytes + head->e_shoff);
  for (unsigned i = 0; i < head->e_shnum; i++) {
    if (sections[i].sh_type != SHT_SYMTAB)
      continue;
    const Elf64_Sym *symbols = (const void *)(bytes + sections[i].sh_offset);
    const char *names = bytes + sections[sections[i].sh_link].sh_offset;
    for (size_t j = 0; j < sections[i].sh_size / sizeof *symbols; j++)
      if (strcmp(names + symbols[j].st_name, "hak_malloc_split") == 0) {
        split_begin = symbols[j].st_value + (head->e_type == ET_DYN ? (uintptr_t)info.dli_fbase : 0);
        split_end = split_begin + symbols[j].st_size;
      }
  }
  munmap((void *)(uintptr_t)bytes, (size_t)file.st_size);
  close(fd);
}

static bool interrupts_fast_path(void *context) {
  uintptr_t at = program_counter(context);
  if (at - split_begin < split_end - split_begin)
    return true;
  return at - (uintptr_t)test_opaque((void *)(uintptr_t)t_malloc) < FAST_PATH_BYTES ||
         at - (uintptr_t)test_opaque((void *)(uintptr_t)t_free) < FAST_PATH_BYTES;
}

/* A block is filled with a number of its own. */
struct block {
  size_t words;
  uint64_t mark, content[];
};

static _Atomic uint64_t marks;
static struct block *_Atomic shared[64];

static struct block *block_make(size_t bytes) {
  struct block *block = CHECK_GOT(t_malloc(bytes + sizeof *block));
  block->words = bytes / sizeof(uint64_t);
  block->mark = atomic_fetch_add(&marks, 1);
  for (size_t i = 0; i < block->words; i += i < 8 ? 1 : 61)
    block->content[i] = block->mark;
  return block;
}

static void block_drop(struct block *block) {
  if (block == NULL)
    return;
  for (size_t i = 0; i < block->words; i += i < 8 ? 1 : 61)
    CHECK_SAY(block->content[i] == block->mark, "a block of %zu words has another's content", block->words);
  t_free(block);
}

static size_t size_of(uint64_t *seed) {
  uint64_t dice = test_random(seed);
  return dice % 512 == 0 ? 300000 : dice % 16 == 0 ? test_random(seed) % 20000 : test_random(seed) % 300;
}

#define HANDLERS 512
static _Thread_local struct block *of_handler[HANDLERS];
static _Thread_local uint64_t handler_seed;
static _Atomic long handled;

static void handle(int number, siginfo_t *info, void *context) {
  if (interrupts_fast_path(context))
    return;
  int kept = errno;
  struct block **place = &of_handler[test_random(&handler_seed) % HANDLERS];
  struct block *old = *place;
  *place = NULL;
  block_drop(old);
  *place = block_make(size_of(&handler_seed));
  if (test_random(&handler_seed) % 8 == 0) /* the program frees it */
    block_drop(atomic_exchange(&shared[test_random(&handler_seed) % 64], block_make(size_of(&handler_seed))));
  atomic_fetch_add_explicit(&handled, 1, memory_order_relaxed);
  errno = kept;
}

static timer_t timer_begin(void) {
  timer_t timer;
  struct sigevent event = {.sigev_notify = SIGEV_THREAD_ID, .sigev_signo = SIGUSR1};
  event.sigev_notify_thread_id = (int)syscall(SYS_gettid);
  CHECK(timer_create(CLOCK_MONOTONIC, &event, &timer) == 0);
  const struct itimerspec period = {{0, PERIOD_NS}, {0, PERIOD_NS}};
  CHECK(timer_settime(timer, 0, &period, NULL) == 0);
  return timer;
}

#define OWN 20000

static void *work(void *argument) {
  double end = test_seconds() + (double)test_rounds(3, 60);
  uint64_t seed = test_seed + (uintptr_t)argument;
  handler_seed = seed ^ 0x5555;
  struct block **own = t_malloc(OWN * sizeof *own);
  CHECK(own != NULL);
  memset(own, 0, OWN * sizeof *own);
  timer_t timer = timer_begin();
  while (test_seconds() < end || handled <= HANDLED_MIN) {
    size_t from = test_random(&seed) % OWN, count = test_random(&seed) % 4000;
    bool is_drop = test_random(&seed) % 2;
    for (size_t i = 0; i < count; i++) {
      struct block **place = &own[(from + i) % OWN];
      block_drop(*place);
      *place = is_drop ? NULL : block_make(size_of(&seed));
    }
    block_drop(atomic_exchange(&shared[test_random(&seed) % 64], block_make(size_of(&seed))));
  }
  timer_delete(timer);
  for (size_t i = 0; i < OWN; i++)
    block_drop(own[i]);
  for (size_t i = 0; i < HANDLERS; i++)
    block_drop(of_handler[i]);
  t_free(own);
  return NULL;
}

static void storm(void) {
  alarm((unsigned)test_rounds(TEST_PATIENCE_SECONDS, 5));
  struct sigaction action = {.sa_sigaction = handle, .sa_flags = SA_SIGINFO | SA_RESTART};
  CHECK(sigaction(SIGUSR1, &action, NULL) == 0);
  test_threads_run(THREADS, work, (void *)(uintptr_t)1, 1);
  for (int i = 0; i < 64; i++)
    block_drop(shared[i]);
}

/* --- handlers that do not return --- */

static void *volatile stir_blocks[3000]; /* malloc and free are leaves for the compiler: it would leave out stores */

/* Until a handler ends it. */
static void stir(void) {
  uint64_t seed = test_seed;
  for (;;) {
    size_t i = test_random(&seed) % 3000;
    void *old = stir_blocks[i];
    stir_blocks[i] = NULL;
    t_free(old);
    stir_blocks[i] = t_malloc(test_random(&seed) % 3000);
  }
}

static void every(long microseconds, void (*handler)(int)) {
  signal(SIGALRM, handler);
  test_alarm_every(microseconds);
}

static void leave(int number) { exit(0); }

static void exit_in_handler(void) {
  every(200, leave);
  stir();
}

static sigjmp_buf before;
static volatile sig_atomic_t jumps;

static void jump(int number) {
  jumps++;
  siglongjmp(before, 1);
}

static void jump_out(void) {
  if (sigsetjmp(before, 1) == 0) /* a signal may come before every() returns */
    every(1000, jump);
  if (jumps < test_rounds(400, 6))
    stir();
  every(0, SIG_IGN);
  void *block = CHECK_GOT(t_malloc(100));
  t_free(block);
  for (long n = test_rounds(70000, 3); n > 0; n--) { /* more than a process may have mappings */
    char *large = CHECK_GOT(t_malloc(300000));
    large[0] = 1;
    t_free(large);
  }
  struct rusage usage;
  CHECK(getrusage(RUSAGE_SELF, &usage) == 0);
  /* About 100 MiB: each jump loses what the call held. It was two MiB a jump once. */
  CHECK_SAY(TEST_SANITIZED || usage.ru_maxrss < 128 * 1024, "%ld KiB", usage.ru_maxrss);
}

int main(int argc, char **argv) {
  const char *part = argc > 1 && argv[1][0] != '-' ? argv[1] : "all";
  bool is_all = strcmp(part, "all") == 0;
  test_begin(argc, argv);
  find_split();
  if (is_all || strcmp(part, "storm") == 0)
    storm();
  if (is_all || strcmp(part, "leave") == 0)
    for (long n = test_rounds(30, 10); n > 0; n--)
      test_in_child(exit_in_handler);
  if (is_all || strcmp(part, "jump") == 0)
    test_in_child(jump_out);
}
