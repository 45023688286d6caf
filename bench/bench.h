/* bench.h: what the benchmark programs share: arguments, clock, random numbers, tables, the report.
 *
 * A program fills a struct bench, calls bench_arguments, prepares, calls bench_start, works, calls
 * bench_stop and ends with `return bench_report(...)`. Its tables come from bench_table, which maps
 * them, so that the allocator under test sees the blocks of the workload and nothing else.
 *
 * A program that sets `repeats` works in rounds, `do { ... } while (bench_again(...))`: one round by itself, with
 * --soak round after round (soak.h). Blocks that live at the end of a round live on in the next one.
 */
#pragma once

#include <pthread.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>

enum { BENCH_EXTRAS_MAX = 12 };

/* One positional argument, in the order of the command line; those left out keep their value. One whose name begins
 * with MIN must not be over the next one. */
struct bench_param {
  const char *name;  /* as printed; lower case in the JSON object */
  uint64_t value;    /* the default, then what was given */
  uint64_t min, max; /* what is accepted, both included */
  const char *text;  /* one line of the help */
};

struct bench {
  const char *name;
  const char *about; /* one sentence of the help */
  struct bench_param *params;
  size_t param_count;
  const char *flag; /* the program's own option ("--ideal") or NULL */
  const char *flag_text;
  bool flag_given;
  bool repeats;                 /* works in rounds, so that --soak is possible */
  void (*json_more)(FILE *out); /* prints further fields of the JSON object, each with a comma before it; or NULL */

  bool json;
  double soak_seconds; /* 0: one round */
  uint64_t epoch_ms, rounds;
  int epoch_fd;
  uint64_t ops;
  double seconds, cpu_seconds;
  uint64_t start_ns, start_cpu_ns;
  uint64_t rss_kb, rss_peak_kb, tables_kb; /* resident now, highest, and of that the tables of the bench */
  uint64_t faults_minor, faults_major;     /* of the whole process until bench_stop */
  struct {
    const char *name;
    double value;
  } extras[BENCH_EXTRAS_MAX];
  size_t extra_count;
};

/* Reads the command line into `bench`. Prints the help and exits 0 on --help; says what is wrong and
 * exits 2 on a bad argument. */
void bench_arguments(struct bench *bench, int argc, char **argv);

/* Says why an argument that is in range by itself does not fit, and exits 2. */
_Noreturn void bench_refuse(const struct bench *bench, const char *format, ...) __attribute__((format(printf, 2, 3)));

/* Ends the program with status 1, for what must not fail: memory, threads, processes. */
_Noreturn void bench_die(const char *format, ...) __attribute__((format(printf, 1, 2)));

/* Zeroed memory from mmap, resident at once and on ordinary pages, so that it weighs the same
 * whatever the allocator does; counted in tables_kb. */
void *bench_table(struct bench *bench, size_t count, size_t item_bytes);

/* The measured part. bench_stop also reads resident memory and faults, so blocks that belong to the
 * workload must still be live. */
void bench_start(struct bench *bench);
void bench_stop(struct bench *bench, uint64_t ops);

/* The end of a round of `ops` operations: whether another one is to follow. They add up in bench->ops. */
bool bench_again(struct bench *bench, uint64_t ops);

/* Adds a number of the program's own to the report. */
void bench_extra(struct bench *bench, const char *name, double value);

/* Prints the line or the JSON object; returns the exit status of main. */
int bench_report(struct bench *bench, uint64_t hash);

/* Starts a thread or ends the program. */
pthread_t bench_thread(void *(*body)(void *), void *argument);
void bench_join(pthread_t thread);

/* A field of /proc/self/status in KiB, read without the allocator; 0 when it is not there. */
uint64_t bench_status_kb(const char *field);
/* The same for another file: the first number behind `field`. */
uint64_t bench_file_number(const char *path, const char *field);
uint64_t bench_faults(void); /* minor page faults of the process so far */
uint64_t bench_cpu_ns(void); /* of all threads */
void bench_sleep_ns(uint64_t ns);
uint64_t bench_clock_ns(void);

/* xorshift64*: state never 0, so a seed goes through bench_seed. */
static inline uint64_t bench_random(uint64_t *state) {
  uint64_t x = *state;
  x ^= x >> 12;
  x ^= x << 25;
  x ^= x >> 27;
  *state = x;
  return x * 0x2545f4914f6cdd1dull;
}

/* A starting state for stream number `stream` of `seed`: neighbouring seeds give unrelated streams. */
static inline uint64_t bench_seed(uint64_t seed, uint64_t stream) {
  uint64_t x = seed * 0x9e3779b97f4a7c15ull + stream * 0xd1b54a32d192ed03ull + 0x9e3779b97f4a7c15ull;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9ull;
  x = (x ^ (x >> 27)) * 0x94d049bb133111ebull;
  x ^= x >> 31;
  return x ? x : 1;
}

/* Two independent choices from one random number: its upper and its lower half, scaled to 0..count-1. */
static inline uint64_t bench_pick(uint64_t random, uint64_t count) { return ((random >> 32) * count) >> 32; }
static inline uint64_t bench_pick_low(uint64_t random, uint64_t count) { return ((uint32_t)random * count) >> 32; }

static inline uint64_t bench_mix(uint64_t hash, uint64_t value) {
  hash = (hash ^ value) * 0x9fb21c651e98df25ull;
  return hash ^ (hash >> 29);
}

/* The write to both ends; reading them back puts the content of the blocks into the hash, so blocks
 * that overlap or move show as another hash. */
static inline void bench_mark(unsigned char *block, size_t size, uint64_t value) {
  block[0] = (unsigned char)value;
  block[size - 1] = (unsigned char)(value >> 8);
}
static inline uint64_t bench_marks(const unsigned char *block, size_t size) {
  return (uint64_t)block[0] << 8 | block[size - 1];
}

/* For blocks of many pages: a write every `stride` bytes and to the last one; a stride of 1 fills the block.
 * bench_touched reads the first, a middle and the last of them back. */
static inline void bench_touch(unsigned char *block, size_t size, size_t stride, uint64_t value) {
  if (stride == 1)
    memset(block, (int)(value & 0xff), size);
  for (size_t at = 0; stride > 1 && at < size; at += stride)
    block[at] = (unsigned char)value;
  block[size - 1] = (unsigned char)(value >> 8);
}
static inline uint64_t bench_touched(const unsigned char *block, size_t size, size_t stride) {
  return (uint64_t)block[size / 2 / stride * stride] << 16 | bench_marks(block, size);
}

static inline void *bench_block(void *block) {
  if (__builtin_expect(!block, 0))
    bench_die("malloc returned NULL");
  return block;
}
