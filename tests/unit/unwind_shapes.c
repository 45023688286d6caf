/* Compiled twice: SHAPES and PLAIN are the names. */
#include "unwind_shapes.h"

#include <alloca.h>
#include <stdlib.h>
#include <string.h>

#define LARGE_BYTES 20000
#define ALIGNMENT 64

struct descent {
  unsigned depth, kinds;
  uint64_t seed;
  bottom_function *at_bottom;
  void *argument;
};

/* Nothing before it is dropped, and no call before it becomes a jump. */
#define KEEP(pointer) __asm__ volatile("" : : "r"(pointer) : "memory")
#define SHAPE(name) __attribute__((noinline)) static void name(struct descent *descent)

static void descend(struct descent *descent);

SHAPE(small) {
  descend(descent);
  KEEP(descent);
}

SHAPE(registers) {
#if defined(__x86_64__)
  __asm__ volatile("" : : : "rbx", "r12", "r13", "r14", "r15", "memory");
#elif defined(__aarch64__)
  __asm__ volatile("" : : : "x19", "x20", "x21", "x27", "x28", "d8", "d15", "memory");
#endif
  descend(descent);
  KEEP(descent);
}

SHAPE(large) {
  char room[LARGE_BYTES];
  KEEP(room);
  descend(descent);
  KEEP(room);
}

SHAPE(dynamic) {
  size_t bytes = descent->seed % 3000 + 1;
  char *room = alloca(bytes);
  memset(room, 0, bytes);
  KEEP(room);
  descend(descent);
  KEEP(room);
}

SHAPE(aligned) {
  _Alignas(ALIGNMENT) char room[ALIGNMENT];
  KEEP(room);
  descend(descent);
  KEEP(room);
}

SHAPE(aligned_dynamic) {
  _Alignas(ALIGNMENT) char room[ALIGNMENT];
  char *more = alloca(descent->seed % 500 + 1);
  KEEP(room);
  KEEP(more);
  descend(descent);
  KEEP(room);
}

__attribute__((noinline)) static void many(struct descent *descent, long a, long b, long c, long d, long e, long f,
                                           long g, long h, long i) {
  descend(descent);
  long sum = a + b + c + d + e + f + g + h + i;
  KEEP(sum);
}

SHAPE(arguments) {
  many(descent, 1, 2, 3, 4, 5, 6, 7, 8, 9);
  KEEP(descent);
}

static int compare(const void *a, const void *b) {
  struct descent *descent = *(struct descent *const *)a;
  if (descent == NULL)
    descent = *(struct descent *const *)b;
  if (descent->depth != UINT32_MAX) /* once */
    descend(descent);
  descent->depth = UINT32_MAX;
  KEEP(descent);
  return 0;
}

SHAPE(sorted) {
  struct descent copy = *descent;
  struct descent *both[2] = {&copy, &copy};
  qsort(both, 2, sizeof both[0], compare);
  KEEP(both);
}

static void descend(struct descent *descent) {
  static void (*const shapes[SHAPES_ALL])(struct descent *) = {small,     registers, large,   dynamic,
                                                               arguments, sorted,    aligned, aligned_dynamic};
  if (descent->depth == 0) {
    descent->at_bottom(descent->argument);
  } else {
    struct descent below = *descent;
    below.depth--;
    below.seed = descent->seed * 6364136223846793005u + 1442695040888963407u;
    shapes[(below.seed >> 33) % below.kinds](&below);
    KEEP(&below);
  }
  KEEP(descent);
}

void SHAPES(unsigned depth, unsigned kinds, uint64_t seed, bottom_function *at_bottom, void *argument) {
  struct descent descent = {depth, kinds, seed, at_bottom, argument};
  descend(&descent);
  KEEP(&descent);
}

__attribute__((noinline)) void PLAIN(unsigned depth, bottom_function *at_bottom, void *argument) {
  if (depth > 1)
    PLAIN(depth - 1, at_bottom, argument);
  else
    at_bottom(argument);
  KEEP(argument);
}
