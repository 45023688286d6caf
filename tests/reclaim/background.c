/* The background thread: when it is there, what it is called, which signals it takes, and when it ends.
 *     background start    none in a small program, nor in one of 40 MiB that frees nothing; frees bring one, called
 *                         hakmem, with all signals blocked, which ends when the program is idle and comes back with
 *                         the next frees
 *     background dense    one after 64 MiB of blocks though nothing is freed, and after each doubling; they move to huge
 *                         pages; not with HAKMEM_HUGE=off
 *     background off      HAKMEM_BACKGROUND=off: none; set while it runs: it is gone at once
 *     background fork     none in the parent once fork returns, nor in the child, until as much is freed there
 *     background exit     the main thread ends: the process does, too, or goes on with its other threads
 *     background raw      the main thread ends by the system call: the process does, too
 *     background live     the same with HAKMEM_LIVE=1
 *     background thread   a thread forks: it is the main thread of the child, which ends with it
 *     background handler  forks in signal handlers, while the thread comes and goes
 * In a static program it comes with 16 MiB, and sleeps instead of ending.
 */
#include <dirent.h>
#include <sys/auxv.h>
#include <sys/syscall.h>

#include "../child.h"
#include "../threads.h"
#include "again.h"

#define HANDLER_FORKS 150

/* Threads of this process called hakmem; *id gets one's. Opens files by hand: fopen allocates. */
static int hakmem_threads(int *id) {
  int count = 0;
  DIR *tasks = CHECK_GOT(opendir("/proc/self/task"));
  for (struct dirent *entry; (entry = readdir(tasks)) != NULL;) {
    char path[300], name[64] = "";
    snprintf(path, sizeof path, "/proc/self/task/%s/comm", entry->d_name);
    FILE *file = fopen(path, "r");
    if (file == NULL)
      continue;
    if (fgets(name, sizeof name, file) && strcmp(name, "hakmem\n") == 0) {
      count++;
      *id = atoi(entry->d_name);
    }
    fclose(file);
  }
  closedir(tasks);
  return count;
}

/* Waits until there are so many; true if there are. */
static int wait_for_threads(int wanted) {
  int id;
  for (double end = test_seconds() + TEST_PATIENCE_SECONDS; test_seconds() < end; test_pause_ms(20))
    if (hakmem_threads(&id) == wanted)
      return 1;
  return 0;
}

/* Without an allocator's help: what the kernel counts. */
static long threads_counted(void) { return test_status("Threads:"); }

static int is_static(void) {
#ifdef TEST_CORE
  return 0; /* libc has an allocator of its own */
#else
  return getauxval(AT_BASE) == 0;
#endif
}

/* Blocks of many sizes, written. */
static void grow(size_t bytes) {
  for (size_t size = 1000; bytes > 0; size = size > 30000 ? 1000 : size * 2) {
    char *block = CHECK_GOT(t_malloc(size));
    memset(block, 1, size);
    bytes -= bytes < size ? bytes : size;
  }
}

static void all_signals_are_blocked(int id) {
  char path[64], line[256];
  unsigned long long blocked = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
  FILE *status = CHECK_GOT(fopen(path, "r"));
  while (fgets(line, sizeof line, status))
    if (strncmp(line, "SigBlk:", 7) == 0)
      blocked = strtoull(line + 7, NULL, 16);
  fclose(status);
  for (int number = 1; number <= SIGRTMAX; number++) {
    if (number == SIGKILL || number == SIGSTOP || (number > 31 && number < SIGRTMIN)) /* the C library's own */
      continue;
    CHECK_SAY(blocked >> (number - 1) & 1, "signal %d is not blocked", number);
  }
}

/* Takes so much and frees it, so that the thread is due in a program with a big heap. */
static void churn(size_t bytes) {
  static char *blocks[64 * MIB / 1000];
  size_t count = bytes / 1000;
  t_fill(blocks, count, 1000, 1);
  t_free_all(blocks, count);
}

/* Makes the program grow, and the thread start. */
static void begin_thread(size_t bytes) {
  grow(bytes);
  churn(20 * MIB);
  CHECK(wait_for_threads(1));
}

static void start(void) {
  int id = 0;
  churn(6 * MIB);
  test_pause_ms(200);
  CHECK(hakmem_threads(&id) == 0);
  t_trim(0); /* the bins give back what they hold of that while the program is small, not step by step later */
  CHECK(hakmem_threads(&id) == 0);
  grow(40 * MIB);
  test_pause_ms(200);
  CHECK(is_static() ? wait_for_threads(1) : hakmem_threads(&id) == 0); /* it gets its name from itself */
  for (int i = 0; i < 2; i++) {
    churn(20 * MIB);
    CHECK(wait_for_threads(1));
    CHECK(hakmem_threads(&id) == 1);
    all_signals_are_blocked(id);
    churn(20 * MIB);
    test_pause_ms(200);
    CHECK(hakmem_threads(&id) == 1);
    if (!is_static())
      CHECK(wait_for_threads(0));
  }
}

/* As grow, but blocks of one size, so slabs are dense. */
static void grow_dense(size_t bytes) {
  for (; bytes >= 1008; bytes -= 1008)
    memset(CHECK_GOT(t_malloc(1008)), 1, 1008);
}

/* As wait_for_threads, but frees nothing: to look at the names takes 32 KiB each time. */
static int wait_for_count(long wanted) {
  for (double end = test_seconds() + TEST_PATIENCE_SECONDS; test_seconds() < end; test_pause_ms(20))
    if (threads_counted() == wanted)
      return 1;
  return 0;
}

static void dense(void) {
  struct hak_stats stats;
  long own = threads_counted();
  CHECK(TEST_HAK(hak_option_set)("huge", "off") == 0);
  grow_dense(80 * MIB);
  test_pause_ms(200);
  CHECK(threads_counted() == own);
  CHECK(TEST_HAK(hak_option_set)("huge", "large") == 0);
  for (int i = 0; i < 2; i++) {
    grow_dense(MIB);
    CHECK(wait_for_count(own + 1));
    CHECK(wait_for_count(own));
    CHECK(TEST_HAK(hak_stats_get)(&stats) == 0);
    if (stats.huge_collapses == 0)
      test_skip("here the kernel moves nothing to huge pages");
    grow_dense(20 * MIB);
    test_pause_ms(200);
    CHECK(threads_counted() == own);
    grow_dense(100 * MIB << i);
  }
}

static void off(void) {
  int id;
  long own = threads_counted();
  for (int i = 0; i < 4; i++) {
    grow(20 * MIB);
    churn(20 * MIB);
    test_pause_ms(100);
    CHECK(hakmem_threads(&id) == 0);
  }
  CHECK(TEST_HAK(hak_option_set)("background", "on") == 0);
  churn(20 * MIB);
  CHECK(wait_for_threads(1));
  CHECK(TEST_HAK(hak_option_set)("background", "off") == 0);
  CHECK(hakmem_threads(&id) == 0);
  CHECK(TEST_SANITIZED || threads_counted() == own);
}

/* The child may wait itself for what does not come. */
static void wait_for(pid_t child) { test_child_passes_within(child, 2 * TEST_PATIENCE_SECONDS); }

/* A thread that a fork stopped in the middle of its work may come back after so long (reclaim/background.c). */
#define UNDONE_REST_SECONDS 1.0

static void forked(void) {
  int id;
  double forked_at = 0;
  grow(40 * MIB);
  for (int i = 0; i < 20; i++) {
    churn(20 * MIB);
    if (i % 2 == 0) /* else it may have just started */
      CHECK(wait_for_threads(1));
    forked_at = test_seconds();
    pid_t child = test_fork();
    CHECK(threads_counted() == 1);
    grow(MIB); /* slow calls that allocate do not bring it back */
    CHECK(threads_counted() == 1);
    if (child == 0 && i < 19)
      _exit(0);
    if (child == 0) {
      churn(8 * MIB);
      test_pause_ms(200);
      CHECK(hakmem_threads(&id) == 0);
      begin_thread(40 * MIB);
      _exit(0);
    }
    if (i == 19) {
      test_pause_ms(200);
      CHECK(hakmem_threads(&id) == 0 || test_seconds() - forked_at >= UNDONE_REST_SECONDS);
    }
    wait_for(child);
  }
  churn(20 * MIB);
  CHECK(wait_for_threads(1));
}

static void *go_on(void *main_thread) {
  CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
  CHECK(wait_for_threads(0));
  grow(40 * MIB);
  churn(20 * MIB);
  return NULL;
}

static void exits(void) {
  for (int others = 0; others < 2; others++) {
    pid_t child = test_fork();
    if (child == 0) {
      static pthread_t self;
      pthread_t thread;
      self = pthread_self();
      begin_thread(60 * MIB);
      if (others)
        CHECK(pthread_create(&thread, NULL, go_on, &self) == 0);
      pthread_exit(NULL); /* the process ends with its last thread, with 0 */
    }
    wait_for(child);
  }
}

/* The child's only thread besides ours ends. */
static void fork_and_end(int is_raw) {
  pid_t child = test_fork();
  if (child == 0) {
    begin_thread(60 * MIB);
    if (is_raw)
      syscall(SYS_exit, 0); /* of this thread only */
    pthread_exit(NULL);
  }
  wait_for(child);
}

static void *forks(void *unused) {
  fork_and_end(0);
  return NULL;
}

static void forks_in_thread(void) { test_thread_run(forks, NULL); }

static void ends_raw(void) { fork_and_end(1); }

static volatile sig_atomic_t handled;

static void fork_in_handler(int number) {
  pid_t child = test_fork();
  if (child == 0)
    _exit(0);
  test_child_passes(child);
  if (++handled == HANDLER_FORKS)
    test_alarm_every(0);
}

static void forks_in_handler(void) {
  grow(64 * MIB);
  signal(SIGALRM, fork_in_handler);
  test_alarm_every(5000);
  while (handled < HANDLER_FORKS) {
    churn(4 * MIB);
#if !defined(TEST_CORE) && !defined(TEST_STATIC) /* there fork is libc's alone, and waits for itself (api/preload.c) */
    pid_t child = test_fork();
    if (child == 0)
      _exit(0);
    test_child_passes(child);
#endif
  }
}

#ifndef __GLIBC__
static void *wait_and_end(void *main_thread) {
  CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
  return NULL;
}

/* Before 1.2.5, musl's list of threads stays locked if a fork's child's main thread ends by pthread_exit: its other
 * threads, ours too, then wait for it for ever when they end. */
static int threads_of_child_can_end(void) {
  int status = 1;
  pid_t child = test_fork();
  if (child == 0) {
    static pthread_t self, thread;
    self = pthread_self();
    CHECK(pthread_create(&thread, NULL, wait_and_end, &self) == 0);
    pthread_exit(NULL);
  }
  for (double end = test_seconds() + 1; waitpid(child, &status, WNOHANG) == 0 && test_seconds() < end;
       test_pause_ms(10))
    ;
  kill(child, SIGKILL);
  return status == 0;
}
#endif

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "start";
  int is_live = strcmp(mode, "live") == 0;
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", strcmp(mode, "off") == 0 ? "off" : "on", "HAKMEM_LIVE",
                  is_live ? "1" : "0");
#ifndef __GLIBC__
  if ((strcmp(mode, "exit") == 0 || strcmp(mode, "thread") == 0 || strcmp(mode, "raw") == 0 || is_live) &&
      !threads_of_child_can_end())
    test_skip("with this musl, older than 1.2.5, threads of a fork's child whose main thread ended cannot end");
#endif
  if (strcmp(mode, "off") == 0)
    off();
  else if (strcmp(mode, "dense") == 0)
    dense();
  else if (strcmp(mode, "fork") == 0)
    forked();
  else if (strcmp(mode, "exit") == 0)
    exits();
  else if (strcmp(mode, "thread") == 0)
    forks_in_thread();
  else if (strcmp(mode, "raw") == 0 || is_live)
    ends_raw();
  else if (strcmp(mode, "handler") == 0)
    test_in_child(forks_in_handler);
  else
    start();
}
