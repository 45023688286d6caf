/* The child of a fork starts a thread and ends its first one by pthread_exit, which walks the C library's list of the
 * robust mutexes that the thread holds. The heap's must be in it once: musl keeps that list over a fork. */

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define BLOCKS 200

static void allocate(void) {
  unsigned char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = CHECK_GOT(t_malloc(100));
    memset(blocks[i], i, 100);
  }
  for (int i = 0; i < BLOCKS; i++) {
    CHECK(blocks[i][0] == i % 256 && blocks[i][99] == i % 256);
    t_free(blocks[i]);
  }
}

/* By its state: with musl before 1.2.5 nobody can join the first thread of a child. */
static int first_thread_ended(void) {
  char text[4096];
  int file = open("/proc/self/status", O_RDONLY);
  CHECK(file >= 0);
  ssize_t length = read(file, text, sizeof text - 1);
  close(file);
  CHECK(length > 0);
  text[length] = 0;
  return strstr(text, "\nState:\tZ") != NULL;
}

static void *ends(void *unused) {
  allocate();
  while (!first_thread_ended())
    usleep(1000);
  allocate();
  _exit(0);
  return unused;
}

static void child_ends(void) {
  pthread_t thread;
  allocate();
  CHECK(pthread_create(&thread, NULL, ends, NULL) == 0);
  pthread_exit(NULL);
}

static void child_forks(void) {
  test_in_child(child_ends);
  child_ends();
}

static void *forks(void *unused) {
  allocate();
  test_in_child(child_ends);
  return unused;
}

/* Before the first malloc. With musl the kernel knows of the list from now on. */
static void lock_a_robust_mutex(void) {
  static pthread_mutex_t mutex;
  pthread_mutexattr_t attributes;
  CHECK(pthread_mutexattr_init(&attributes) == 0);
  CHECK(pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0);
  CHECK(pthread_mutexattr_setpshared(&attributes, PTHREAD_PROCESS_SHARED) == 0);
  CHECK(pthread_mutex_init(&mutex, &attributes) == 0);
  CHECK(pthread_mutex_lock(&mutex) == 0 && pthread_mutex_unlock(&mutex) == 0);
}

int main(int argc, char **argv) {
  lock_a_robust_mutex();
  test_begin(argc, argv);
  test_in_child(child_ends); /* the heap is made by the fork */
  allocate();
  test_in_child(child_ends);
  test_in_child(child_forks);
  test_thread_run(forks, NULL);
  forks(NULL); /* and again where a child was forked before */
}
