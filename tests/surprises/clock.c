/* clock: a program with a clock_gettime of its own, which stands still, as simulators and libfaketime have. malloc must
 * not ask it: the memory that the program frees would never be old enough to go back. */
#include "../check.h"

#define PIECES 3000

static volatile unsigned long calls;

__attribute__((visibility("default"))) int clock_gettime(clockid_t clock, struct timespec *out) {
  (void)clock;
  calls++;
  *out = (struct timespec){.tv_sec = 1};
  return 0;
}

int main(void) {
  static void *pieces[PIECES];
  struct timespec now;
  CHECK(clock_gettime(CLOCK_MONOTONIC, &now) == 0);
  for (size_t round = 0; round < 20; round++) {
    for (size_t i = 0; i < PIECES; i++)
      memset(pieces[i] = test_opaque(malloc(1 + i * (1 + i % 7))), 1, 1);
    for (size_t i = 0; i < PIECES; i++)
      free(pieces[i]);
    test_pause_ms(1);
  }
  CHECK_SAY(calls == 1, "%lu calls", calls - 1);
  puts("clock: ok");
  return 0;
}
