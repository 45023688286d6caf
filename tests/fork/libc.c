/* fork() while other threads allocate with a lock of libc held: of streams, the loader, name services, locales, exit
 * handlers, the time zone. libc's fork waits for some of these locks, after the allocator's fork handler ran; so a
 * thread that allocates must not wait for the forking thread. (glibc's bug 19431 is the case of streams.) */
#include <dlfcn.h>
#include <locale.h>
#include <netdb.h>
#include <pwd.h>
#include <stdatomic.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define FORKS 20
#define WORKERS 2
#define FLUSHERS 1
#define KEPT 64

static _Atomic int ending;

/* Allocations that take the slow path now and then: blocks of many sizes, some of which stay for a while. */
static void allocate(uint64_t *seed) {
  static _Thread_local void *kept[KEPT];
  for (int i = 0; i < 40; i++) {
    size_t size = test_random(seed) % 64 ? test_random(seed) % 4000 + 1 : test_random(seed) % 400000 + 1;
    char *block = CHECK_GOT(t_malloc(size));
    block[0] = block[size - 1] = 1;
    void **place = &kept[test_random(seed) % KEPT];
    t_free(*place);
    *place = block;
  }
}

#ifdef __GLIBC__
static ssize_t cookie_write(void *cookie, const char *bytes, size_t length) {
  allocate(cookie);
  return (ssize_t)length;
}

static void *streams(void *seed) {
  FILE *stream = CHECK_GOT(fopencookie(seed, "w", (cookie_io_functions_t){.write = cookie_write}));
  while (!atomic_load(&ending)) {
    CHECK(fputs("some words", stream) >= 0);
    CHECK(fflush(stream) == 0);
  }
  return NULL; /* the stream stays: closing takes locks that a stuck fork holds */
}

static void *flush_all(void *unused) {
  while (!atomic_load(&ending))
    CHECK(fflush(NULL) == 0);
  return unused;
}
#endif

static void *loader(void *seed) {
  while (!atomic_load(&ending)) {
    void *library = dlopen("libm.so.6", RTLD_NOW | RTLD_LOCAL);
    allocate(seed);
    if (library)
      dlclose(library);
    dlsym(RTLD_DEFAULT, "no_such_name");
    dlerror();
  }
  return NULL;
}

static void *names(void *seed) {
  while (!atomic_load(&ending)) {
    char bytes[4096];
    struct passwd user, *found;
    getpwnam_r("root", &user, bytes, sizeof bytes, &found);
    struct addrinfo *addresses = NULL;
    if (getaddrinfo("127.0.0.1", "80", &(struct addrinfo){.ai_flags = AI_NUMERICHOST}, &addresses) == 0)
      freeaddrinfo(addresses);
    allocate(seed);
  }
  return NULL;
}

static void *locales(void *seed) {
  while (!atomic_load(&ending)) {
    locale_t locale = newlocale(LC_ALL_MASK, "C.UTF-8", NULL);
    if (locale)
      freelocale(locale);
    allocate(seed);
  }
  return NULL;
}

static void *zones(void *seed) {
  while (!atomic_load(&ending)) {
    time_t now = time(NULL);
    struct tm broken;
    tzset();
    localtime_r(&now, &broken);
    allocate(seed);
  }
  return NULL;
}

static void nothing(void) {}

static void *exit_handlers(void *seed) {
  for (int i = 0; !atomic_load(&ending); i++) {
    if (i < 2000)
      atexit(nothing);
    allocate(seed);
  }
  return NULL;
}

static void *(*holds)(void *);
static void *(*waits)(void *);

static void fork_on(void) {
  pthread_t threads[WORKERS + FLUSHERS];
  static uint64_t seeds[WORKERS];
  for (int i = 0; i < WORKERS; i++)
    seeds[i] = test_seed + (uint64_t)i;
  test_threads_start(threads, WORKERS, holds, seeds, sizeof *seeds);
  if (waits)
    test_threads_start(threads + WORKERS, FLUSHERS, waits, NULL, 0);
  uint64_t seed = 77;
  for (long n = test_rounds(FORKS, 10); n > 0; n--) {
    allocate(&seed);
    TEST_IN_CHILD {
      for (int i = 0; i < 20; i++)
        allocate(&seed);
    }
  }
  _exit(0); /* the others may hold any lock */
}

static void run(const char *what, void *(*holder)(void *), void *(*waiter)(void *)) {
  puts(what);
  fflush(stdout);
  holds = holder;
  waits = waiter;
  test_in_child(fork_on);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
#ifdef __GLIBC__
  run("streams", streams, flush_all);
#endif
  run("loader", loader, NULL);
  run("names", names, NULL);
  run("locales", locales, NULL);
  run("zones", zones, NULL);
  run("exit handlers", exit_handlers, NULL);
}
