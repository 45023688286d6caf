/* A program that is not preloaded opens the library itself, privately, and uses it beside libc's
 * malloc: several times, from threads that outlive a dlclose. argv[1] is libhakmem.so, argv[2] how it is opened. What
 * libc's malloc gave is foreign to it and must be ignored. */
#include <dlfcn.h>

#include "../threads.h"

struct heap {
  void *handle;
  void *(*make)(size_t);
  void *(*resize)(void *, size_t);
  void (*release)(void *);
  size_t (*usable)(const void *);
};

static struct heap heap;

static void *library_open(const char *path, const char *how) {
#ifdef RTLD_DEEPBIND
  if (strcmp(how, "deepbind") == 0)
    return dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_DEEPBIND);
  if (strcmp(how, "dlmopen") == 0)
    return dlmopen(LM_ID_NEWLM, path, RTLD_NOW | RTLD_LOCAL);
#endif
  return dlopen(path, RTLD_NOW | (strcmp(how, "global") == 0 ? RTLD_GLOBAL : RTLD_LOCAL));
}

static void heap_open(const char *path, const char *how) {
  heap.handle = library_open(path, how);
  CHECK_SAY(heap.handle != NULL, "%s", dlerror());
  heap.make = (void *(*)(size_t))dlsym(heap.handle, "malloc");
  heap.resize = (void *(*)(void *, size_t))dlsym(heap.handle, "realloc");
  heap.release = (void (*)(void *))dlsym(heap.handle, "free");
  heap.usable = (size_t (*)(const void *))dlsym(heap.handle, "hak_usable_size");
  CHECK(heap.make && heap.resize && heap.release && heap.usable);
  CHECK(heap.make != malloc);
}

static void heap_use(void) {
  for (size_t size = 1; size < 4000000; size = size * 2 + 3) {
    char *ours = heap.make(size), *theirs = test_opaque(malloc(size));
    CHECK(ours && theirs && heap.usable(ours) >= size && heap.usable(theirs) == 0);
    memset(ours, 1, size);
    memset(theirs, 2, size);
    heap.release(theirs); /* foreign: ignored */
    CHECK(theirs[size - 1] == 2);
    ours = heap.resize(ours, size * 2);
    CHECK(ours && ours[size - 1] == 1);
    heap.release(ours);
    free(theirs);
  }
}

static void *worker(void *argument) {
  for (int i = 0; i < 30; i++)
    heap_use();
  return NULL;
}

int main(int argc, char **argv) {
  CHECK(argc > 2);
  test_begin(argc, argv);
  for (int n = 0; n < 4; n++) {
    heap_open(argv[1], argv[2]);
    pthread_t threads[3];
    test_threads_start(threads, 3, worker, NULL, 0);
    heap_use();
    test_threads_join(threads, 3);
    CHECK(dlclose(heap.handle) == 0);
  }
}
