/* A profile is started, written and stopped every 50 ms while threads come and go, processes fork, and a library is
 * loaded and unloaded: no hang, no crash, every file is whole. A few seconds; ten minutes with --long. A hang ends by
 * SIGALRM. */
#include <dlfcn.h>
#include <pthread.h>
#include <sched.h>
#include <stdatomic.h>

#include "../child.h"
#include "../heap_api.h"

#define SHARED 512
#define DIRECTORY_MAX 200

#ifdef TEST_CORE
#define start hak_profile_start
#define stop hak_profile_stop
#define dump hak_profile_dump
#else
static int (*start)(size_t), (*stop)(void), (*dump)(const char *);
static void find_functions(void) {
  start = (int (*)(size_t))dlsym(RTLD_DEFAULT, "hak_profile_start");
  stop = (int (*)(void))dlsym(RTLD_DEFAULT, "hak_profile_stop");
  dump = (int (*)(const char *))dlsym(RTLD_DEFAULT, "hak_profile_dump");
  CHECK(start && stop && dump);
}
#endif

static void *_Atomic shared[SHARED];
static _Atomic int is_over;
static _Atomic long rounds[3];

static void allocate(uint64_t *seed, int depth) {
  char on_stack[64 + 16 * (depth % 8)];
  on_stack[0] = (char)depth;
  test_opaque(on_stack);
  if (depth > 0) {
    allocate(seed, depth - 1);
    return;
  }
  size_t size = test_random(seed) % 256 ? test_random(seed) % 3000 + 1 : test_random(seed) % 900000 + 1;
  char *block = CHECK_GOT(t_malloc(size));
  block[0] = block[size - 1] = 1;
  if (test_random(seed) % 64 == 0)
    block = t_realloc(block, size * 2);
  t_free(atomic_exchange(&shared[test_random(seed) % SHARED], block));
}

static void *work(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  for (int i = 0; i < 3000; i++)
    allocate(&seed, (int)(test_random(&seed) % 40));
  return NULL;
}

static void *threads_come_and_go(void *argument) {
  for (uintptr_t seed = (uintptr_t)argument; !atomic_load(&is_over); seed += 7) {
    pthread_t thread;
    if (pthread_create(&thread, NULL, work, (void *)seed) == 0)
      pthread_join(thread, NULL);
    atomic_fetch_add(&rounds[0], 1);
  }
  return NULL;
}

static void *libraries_come_and_go(void *argument) {
  while (!atomic_load(&is_over)) {
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    if (library)
      dlclose(library);
    library = dlopen("libz.so.1", RTLD_NOW | RTLD_LOCAL);
    if (library)
      dlclose(library);
    atomic_fetch_add(&rounds[1], 1);
    usleep(500);
  }
  return NULL;
}

static void *processes_fork(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  while (!atomic_load(&is_over)) {
    TEST_IN_CHILD {
      alarm(TEST_PATIENCE_SECONDS / 2);
      for (int i = 0; i < 300; i++)
        allocate(&seed, i % 20);
      CHECK(start(20000) == 0 && stop() == 0);
    }
    atomic_fetch_add(&rounds[2], 1);
    usleep(2000);
  }
  return NULL;
}

/* gzip's magic; that it is whole is for readers to say (pprof.py), here that it is no part. */
static void check_file(const char *path) {
  unsigned char head[3] = {0};
  FILE *file = CHECK_GOT(fopen(path, "rb"));
  CHECK(fread(head, 1, sizeof head, file) == sizeof head && head[0] == 0x1f && head[1] == 0x8b);
  fclose(file);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
#ifndef TEST_CORE
  find_functions();
#endif
  char directory[] = "/tmp/hakmem-churn-XXXXXX", path[DIRECTORY_MAX];
  CHECK(mkdtemp(directory) != NULL);
  snprintf(path, sizeof path, "%s/heap.pb.gz", directory);
  long wanted = test_rounds(40, 300);
  alarm((unsigned)wanted / 4 + TEST_PATIENCE_SECONDS);
  void *(*const bodies[])(void *) = {threads_come_and_go, threads_come_and_go, libraries_come_and_go, processes_fork};
  pthread_t threads[4];
  for (uintptr_t i = 0; i < 4; i++)
    CHECK(pthread_create(&threads[i], NULL, bodies[i], (void *)(i + 1)) == 0);
  long files = 0;
  for (; files < wanted || rounds[0] <= 3 || rounds[1] <= 3 || rounds[2] <= 3; files++) {
    CHECK(start(files % 3 ? 10000 : 512 << 10) == 0);
    usleep(25000);
    CHECK(dump(path) == 0);
    check_file(path);
    usleep(25000);
    if (files % 4)
      CHECK(stop() == 0);
  }
  atomic_store(&is_over, 1);
  for (int i = 0; i < 4; i++)
    pthread_join(threads[i], NULL);
  unlink(path);
  rmdir(directory);
}
