"""C and C++ programs that do what programs do to a library inside them, for the tests of hak record."""

# What is in front of every program: bytes it has live, by its own count. It prints the peak with write.
HEAD = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <malloc.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>
static _Atomic long live, peak;
static void *made(void *block, long size) {
  long now = atomic_fetch_add(&live, size) + size;
  for (long seen = peak; now > seen && !atomic_compare_exchange_weak(&peak, &seen, now);) {}
  return block;
}
static void churn(int count) {
  for (int i = 0; i < count; i++) {
    void *volatile block = malloc(100 + i % 50);
    free(block);
  }
}
static void say(long number) {
  char text[32];
  (void)!write(1, text, snprintf(text, sizeof text, "%ld\n", number));
}
"""
PROGRAMS = {
    # One thread, all of the family; 3 MiB live at the most.
    "family": r"""
int main(void) {
  void *block[9], *other;
  block[0] = made(malloc(1000), 1000);
  block[1] = made(calloc(10, 30), 300);
  block[2] = made(realloc(NULL, 77), 77);
  block[2] = realloc(block[2], 200000); made(0, 200000 - 77);
  block[3] = made(aligned_alloc(4096, 8192), 8192);
  block[4] = made(memalign(64, 640), 640);
  block[5] = !posix_memalign(&other, 256, 70000) ? made(other, 70000) : 0;
  block[6] = made(reallocarray(NULL, 5, 5), 25);
  block[7] = made(valloc(10), 10);
  block[8] = made(malloc(3 << 20), 3 << 20);
  if (realloc(block[0], (size_t)1 << 62) || malloc((size_t)1 << 62) || malloc_usable_size(block[0]) < 1000) return 9;
  free(block[8]); made(0, -(3 << 20));
  block[1] = realloc(block[1], 10); made(0, 10 - 300);
  for (int i = 0; i < 8; i++) free(block[i]);
  say(peak);
}""",
    # Two threads make, two free what they made, through a ring; each frees its own half of the rest.
    "handover": r"""
enum { RING = 256, COUNT = 20000 };
static void *_Atomic ring[RING];
static long size_of(int i) { return 16 + i * 7 % 3000; }
static void *maker(void *first) {
  for (int i = (int)(long)first; i < COUNT; i += 2) {
    void *block = made(malloc((size_t)size_of(i)), size_of(i));
    while (atomic_load(&ring[i % RING])) sched_yield();
    atomic_store(&ring[i % RING], block);
  }
  return NULL;
}
static void *taker(void *first) {
  for (int i = (int)(long)first; i < COUNT; i += 2) {
    void *block;
    while (!(block = atomic_load(&ring[i % RING]))) sched_yield();
    made(0, -size_of(i));
    free(block);
    atomic_store(&ring[i % RING], NULL);
  }
  return NULL;
}
int main(void) {
  pthread_t threads[4];
  void *large = made(malloc(2 << 20), 2 << 20);
  for (long i = 0; i < 4; i++) pthread_create(&threads[i], NULL, i < 2 ? maker : taker, (void *)(i % 2));
  for (int i = 0; i < 4; i++) pthread_join(threads[i], NULL);
  free(large);
  say(peak);
}""",
    "ends": r"""
int main(int count, char **words) {
  const char *how = words[count - 1];
  churn(1000);
  if (!strcmp(how, "abort")) abort();
  if (!strcmp(how, "fault")) *(volatile int *)8 = 1;
  if (!strcmp(how, "term")) raise(SIGTERM);
  if (!strcmp(how, "_exit")) _exit(3);
  if (!strcmp(how, "quick_exit")) quick_exit(4);
  if (!strcmp(how, "kill")) { churn(30000); raise(SIGKILL); }
  if (!strcmp(how, "exec")) execl(words[0], words[0], "again", (char *)NULL);
  if (!strcmp(how, "execle")) execle(words[0], words[0], "again", (char *)NULL, environ);
  if (!strcmp(how, "no-exec")) { execlp("/nowhere/x", "x", (char *)NULL); churn(500); return 5; }
  return 0;
}""",
    "processes": r"""
int main(void) {
  for (int i = 0; i < 3; i++) {
    pid_t child = fork();
    if (!child) { churn(700); exit(0); }
    waitpid(child, NULL, 0);
  }
  for (int i = 0; i < 3; i++) {
    pid_t child = vfork();
    if (!child) { execl("/nowhere/x", "x", (char *)NULL); _exit(1); }
    waitpid(child, NULL, 0);
  }
  churn(10);
}""",
    "crowd": r"""
static void *body(void *unused) { churn(50); return unused; }
int main(void) {
  pthread_t threads[600];
  for (int round = 0; round < 3; round++) {
    for (int i = 0; i < 600; i++) pthread_create(&threads[i], NULL, body, NULL);
    for (int i = 0; i < 600; i++) pthread_join(threads[i], NULL);
  }
}""",
    # A daemon's habit: closes all it did not open, and opens files of its own at every number.
    "closes": r"""
int main(int count, char **words) {
  (void)count;
  close_range(3, ~0u, 0);
  int fd = -1;
  for (int i = 0; i < 600; i++) fd = open(words[1], O_RDWR | O_CREAT, 0644);
  (void)!write(fd, "mine", 4);
  churn(100000);
}""",
}
SITES = r"""
#include <cstdlib>
#include <new>
static void *keep[8];
__attribute__((noinline)) void first() { keep[0] = ::operator new(100000); }
__attribute__((noinline)) void second() { keep[1] = new char[100000]; keep[2] = new (std::align_val_t(4096)) char[100000]; }
struct alignas(8192) Wide { char byte[8192 * 20]; };
int main(int, char **words) {
  first(); second();
  keep[3] = new (std::nothrow) char[100000];
  Wide *wide = new Wide; delete wide;
  try { keep[4] = ::operator new((size_t)1 << 60 | (size_t)(words[0] == nullptr)); } catch (std::bad_alloc &) { keep[4] = malloc(70000); }
  ::operator delete(keep[0]); delete[] (char *)keep[1]; ::operator delete[](keep[2], std::align_val_t(4096));
  delete[] (char *)keep[3]; free(keep[4]);
}
"""
