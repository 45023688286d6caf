/* The background thread: when it is there, what it is called, which signals it takes, and when it ends.
 *     background start    none in a small program; one, called hakmem, with all signals blocked, in a big one
 *     background off      HAKMEM_BACKGROUND=off: none
 *     background fork     none in a child, until that has grown by as much
 *     background exit     the main thread ends: the process does, too, or goes on with its other threads
 *     background thread   a thread forks: it is the main thread of the child, which ends with it
 */
#include <dirent.h>
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "again.h"

#define MIB ((size_t)1 << 20)
#define WAIT_SECONDS 10.0

/* Threads of this process called hakmem; *id gets one's. Opens files by hand: fopen allocates. */
static int hakmem_threads(int *id) {
  int count = 0;
  DIR *tasks = opendir("/proc/self/task");
  CHECK(tasks != NULL);
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

static void pause_ms(long ms) {
  struct timespec pause = {.tv_sec = ms / 1000, .tv_nsec = ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
}

/* Waits until there are so many; true if there are. */
static int wait_for_threads(int wanted) {
  int id;
  for (double end = test_seconds() + WAIT_SECONDS; test_seconds() < end; pause_ms(20))
    if (hakmem_threads(&id) == wanted)
      return 1;
  return 0;
}

/* Blocks of many sizes, written. */
static void grow(size_t bytes) {
  for (size_t size = 1000; bytes > 0; size = size > 200000 ? 1000 : size * 2) {
    char *block = t_malloc(size);
    CHECK(block != NULL);
    memset(block, 1, size);
    bytes -= bytes < size ? bytes : size;
  }
}

static void all_signals_are_blocked(int id) {
  char path[64], line[256];
  unsigned long long blocked = 0;
  snprintf(path, sizeof path, "/proc/self/task/%d/status", id);
  FILE *status = fopen(path, "r");
  CHECK(status != NULL);
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

static void start(void) {
  int id = 0;
  grow(6 * MIB);
  pause_ms(200);
  CHECK(hakmem_threads(&id) == 0);
  grow(40 * MIB);
  CHECK(wait_for_threads(1));
  CHECK(hakmem_threads(&id) == 1);
  all_signals_are_blocked(id);
  grow(40 * MIB);
  pause_ms(200);
  CHECK(hakmem_threads(&id) == 1);
}

static void off(void) {
  int id;
  for (int i = 0; i < 4; i++) {
    grow(40 * MIB);
    pause_ms(100);
    CHECK(hakmem_threads(&id) == 0);
  }
}

static void wait_for(pid_t child) {
  int status = 0;
  pid_t ended = 0;
  for (double end = test_seconds() + 2 * WAIT_SECONDS; ended == 0 && test_seconds() < end; pause_ms(10)) {
    ended = waitpid(child, &status, WNOHANG);
    CHECK(ended >= 0);
  }
  if (ended == 0)
    kill(child, SIGKILL);
  CHECK_SAY(ended == child, "the process does not end");
  CHECK_SAY(status == 0, "status 0x%x", status);
}

static void forked(void) {
  int id;
  grow(40 * MIB);
  CHECK(wait_for_threads(1));
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(hakmem_threads(&id) == 0);
    grow(2 * MIB);
    pause_ms(200);
    CHECK(hakmem_threads(&id) == 0);
    grow(40 * MIB);
    CHECK(wait_for_threads(1));
    CHECK(hakmem_threads(&id) == 1);
    _exit(0);
  }
  wait_for(child);
  CHECK(hakmem_threads(&id) == 1);
}

static void *go_on(void *main_thread) {
  CHECK(pthread_join(*(pthread_t *)main_thread, NULL) == 0);
  CHECK(wait_for_threads(0));
  grow(40 * MIB);
  return NULL;
}

static void exits(void) {
  for (int others = 0; others < 2; others++) {
    pid_t child = fork();
    CHECK(child >= 0);
    if (child == 0) {
      static pthread_t self;
      pthread_t thread;
      self = pthread_self();
      grow(60 * MIB);
      CHECK(wait_for_threads(1));
      if (others)
        CHECK(pthread_create(&thread, NULL, go_on, &self) == 0);
      pthread_exit(NULL); /* the process ends with its last thread, with 0 */
    }
    wait_for(child);
  }
}

static void *forks(void *unused) {
  (void)unused;
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    grow(60 * MIB);
    CHECK(wait_for_threads(1));
    pthread_exit(NULL); /* the child's only thread besides ours */
  }
  wait_for(child);
  return NULL;
}

static void forks_in_thread(void) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, forks, NULL) == 0);
  pthread_join(thread, NULL);
}

int main(int argc, char **argv) {
  const char *mode = argc > 1 ? argv[1] : "start";
  const char *const options[] = {"HAKMEM_BACKGROUND", strcmp(mode, "off") == 0 ? "off" : "on", NULL};
  test_again_with(argv, options);
  test_begin(argc, argv);
#ifndef __GLIBC__
  /* Both modes look at a fork's child, where musl's list of threads stays locked by the main thread that ended:
   * any other thread waits for it for ever when it ends, ours too. */
  if (strcmp(mode, "exit") == 0 || strcmp(mode, "thread") == 0)
    test_skip("with musl, a fork's child whose main thread ends by pthread_exit hangs if it has other threads");
#endif
  if (strcmp(mode, "off") == 0)
    off();
  else if (strcmp(mode, "fork") == 0)
    forked();
  else if (strcmp(mode, "exit") == 0)
    exits();
  else if (strcmp(mode, "thread") == 0)
    forks_in_thread();
  else
    start();
  printf("background %s: ok\n", mode);
  return 0;
}
