/* events.c: makes every event that has a probe. In HAKMEM_LIMIT_MB=64 the biggest request is refused. */
#include <malloc.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#define LARGE_BYTES 1234567u
#define ROUNDS 8
#define BLOCKS 20000
#define BIG_BYTES ((size_t)24 << 20)
#define REFUSED_BYTES ((size_t)128 << 20)

static void *blocks[BLOCKS];

static void *free_all(void *unused) {
  for (unsigned i = 0; i < BLOCKS; i++)
    free(blocks[i]);
  return NULL;
}

/* One call site, whatever the compiler makes of the loop around it. */
__attribute__((noinline)) static void take_large(void) { free(malloc(LARGE_BYTES)); }

static void take_all(void) {
  for (unsigned i = 0; i < BLOCKS; i++)
    blocks[i] = malloc(96);
}

/* The background thread starts when much of a resident heap was freed, with musl already when it grows. Its first round
 * comes a period later. */
static void idle(void) {
  char *big[2];
  for (unsigned i = 0; i < 2; i++) {
    big[i] = malloc(BIG_BYTES);
    for (size_t at = 0; at < BIG_BYTES; at += 4096)
      big[i][at] = 1;
  }
  free(big[0]);
  free(big[1]);
  nanosleep(&(struct timespec){.tv_nsec = 300000000}, NULL);
}

int main(void) {
  pthread_t other;
  for (unsigned i = 0; i < ROUNDS; i++)
    take_large();
  take_all();
  free_all(NULL);
  take_all();
  if (pthread_create(&other, NULL, free_all, NULL) != 0 || pthread_join(other, NULL) != 0)
    return 1;
  idle();
  malloc_trim(0);
  void *refused = malloc(REFUSED_BYTES);
  printf("%s\n", refused ? "not refused" : "refused");
}
