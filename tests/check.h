/* check.h: what every test program shares: CHECK, a seeded generator, options, the ways to end.
 *
 * No test library is needed, so that the same programs run under sanitizers, with musl and under an
 * emulator. A program ends with 0 when it passed, 1 when a CHECK failed and 77 when it could not run
 * here (the reason is printed). Nothing in this header allocates on the heap under test.
 */
#pragma once

#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define TEST_SANITIZED 1
#endif
#endif
#ifndef TEST_SANITIZED
#define TEST_SANITIZED 0
#endif

#if defined(__SANITIZE_THREAD__)
#define TEST_TSAN 1
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define TEST_TSAN 1
#endif
#endif
#ifndef TEST_TSAN
#define TEST_TSAN 0
#endif

#define CHECK(condition) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, NULL))
#define CHECK_SAY(condition, ...) ((condition) ? (void)0 : check_failed(__FILE__, __LINE__, #condition, __VA_ARGS__))

#define MIB ((size_t)1 << 20)

/* How a program ends when a CHECK failed; a fuzzer keeps the input only if it ends by a signal. */
#ifndef TEST_FAILED
#define TEST_FAILED() _exit(1)
#endif

/* Writes with write(2): a failing allocator must not be able to swallow the message. */
__attribute__((noreturn, format(printf, 4, 5))) static inline void
check_failed(const char *file, int line, const char *condition, const char *format, ...) {
  char text[1024];
  int length = snprintf(text, sizeof text, "%s:%d: CHECK failed: %s", file, line, condition);
  if (format && length > 0 && (size_t)length < sizeof text - 4) {
    va_list arguments;
    va_start(arguments, format);
    length += snprintf(text + length, sizeof text - (size_t)length, " (");
    length += vsnprintf(text + length, sizeof text - (size_t)length, format, arguments);
    va_end(arguments);
    if ((size_t)length < sizeof text - 2)
      text[length++] = ')';
  }
  if ((size_t)length > sizeof text - 2)
    length = (int)sizeof text - 2;
  text[length++] = '\n';
  if (write(2, text, (size_t)length) < 0)
    _exit(2);
  TEST_FAILED();
}

/* What the call gives, which must not be NULL. */
#define CHECK_GOT(call) check_got(call, __FILE__, __LINE__, #call)

static inline void *check_got(void *got, const char *file, int line, const char *call) {
  if (got == NULL)
    check_failed(file, line, call, "NULL");
  return got;
}

__attribute__((noreturn)) static inline void test_skip(const char *reason) {
  printf("skipped: %s\n", reason);
  fflush(stdout);
  _exit(77);
}

static inline void test_skip_if(int is_so, const char *reason) {
  if (is_so)
    test_skip(reason);
}

/* Changes the root to a folder that has no /proc. Skips the test if that is not allowed. */
static inline void test_leave_proc(void) {
  test_skip_if(chroot("/usr") != 0 || chdir("/") != 0, "only root can change its root");
}

/* Set by test_begin from the command line: --long, --seed N. */
static int test_long __attribute__((unused));
static uint64_t test_seed __attribute__((unused)) = 1;

#ifndef TEST_EMULATED
#define TEST_EMULATED 0
#endif

/* Whether this process's RSS is the heap's doing: sanitizers and emulators need memory of their own. */
#define TEST_RSS_COUNTS (!TEST_SANITIZED && !TEST_EMULATED)

/* How many times slower the program is under TSan or an emulator, or another sanitizer, about. */
#if defined(TEST_STATIC) &&                                                                                            \
    defined(__GLIBC__) /* a matter of linking: the other flavours are those that run long enough */
#define TEST_SLOWNESS 4
#else
#define TEST_SLOWNESS (TEST_TSAN || TEST_EMULATED ? 16 : TEST_SANITIZED ? 4 : 1)
#endif

/* The number of rounds: `quick` by default, `times` as many with --long; fewer in a slow build. */
static inline long test_rounds(long quick, long times) {
  long rounds = test_long ? quick * times : quick;
  return rounds >= TEST_SLOWNESS ? rounds / TEST_SLOWNESS : rounds;
}

/* splitmix64: every test that draws numbers draws them from here, so a seed repeats a run. */
static inline uint64_t test_random(uint64_t *state) {
  uint64_t z = (*state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

/* TEST_WRAP(type, name, parameters) { ... } takes the place of a function that the linker wraps (--wrap), where another
 * object file calls it. The function itself is __real_NAME. */
#define TEST_WRAP(type, name, ...)                                                                                     \
  type __real_##name(__VA_ARGS__);                                                                                     \
  type __wrap_##name(__VA_ARGS__)

/* Hides a value from the optimiser and from warnings about deliberate misuse. */
static inline void *test_opaque(void *pointer) {
  __asm__ volatile("" : "+r"(pointer) : : "memory");
  return pointer;
}

static inline size_t test_opaque_size(size_t size) {
  __asm__ volatile("" : "+r"(size));
  return size;
}

#ifdef __cplusplus
#define TEST_C extern "C"
#else
#define TEST_C extern
#endif

/* Defined in mutant.c only. */
TEST_C const char test_is_control __attribute__((weak));

/* How long a test waits for what must come: no bound on speed, so it is generous. A control waits in vain. */
#define TEST_PATIENCE_SECONDS (&test_is_control ? 3 : 200)

static inline double test_seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + (double)now.tv_nsec * 1e-9;
}

static inline void test_pause_ms(long ms) { usleep((useconds_t)ms * 1000); }

/* SIGALRM each so many microseconds; 0: no more. A handler that takes longer than that leaves the program no time, so
 * call test_alarm_every(0) in it once it came often enough. */
static inline void test_alarm_every(long microseconds) {
  const struct itimerval timer = {{0, microseconds}, {0, microseconds}};
  CHECK(setitimer(ITIMER_REAL, &timer, NULL) == 0);
}

/* Reads to the end, or until there are so many bytes. Returns how many there are. */
static inline size_t test_read(int fd, void *bytes, size_t bytes_max) {
  size_t held = 0;
  for (ssize_t got; held < bytes_max && (got = read(fd, (char *)bytes + held, bytes_max - held)) > 0;)
    held += (size_t)got;
  return held;
}

/* A number of /proc/self/status: "Threads:", or KiB, as "VmRSS:" is; 0 when it is not there. Allocates nothing: it is
 * asked for where memory is out, too. */
static inline long test_status(const char *field) {
  char text[8192];
  int status = open("/proc/self/status", O_RDONLY | O_CLOEXEC);
  CHECK(status >= 0);
  text[test_read(status, text, sizeof text - 1)] = 0;
  CHECK(close(status) == 0);
  const char *at = strstr(text, field);
  return at ? strtol(at + strlen(field), NULL, 10) : 0;
}

static inline long test_rss_kib(void) { return test_status("VmRSS:"); }

/* How many mappings the process has. */
static inline long test_mappings(void) {
  char text[4096];
  long lines = 0;
  int maps = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  CHECK(maps >= 0);
  for (size_t length; (length = test_read(maps, text, sizeof text)) > 0;)
    for (size_t i = 0; i < length; i++)
      lines += text[i] == '\n';
  CHECK(close(maps) == 0);
  return lines;
}

/* A weak reference takes nothing out of an archive. */
#if defined(TEST_STATIC) || defined(TEST_CORE) || defined(TEST_LINKED)
TEST_C size_t hak_usable_size(const void *block);
#else
TEST_C size_t hak_usable_size(const void *block) __attribute__((weak));
#endif

/* With TEST_EXPECT_HAKMEM set, a drop-in test refuses to pass on another allocator: a block from
 * malloc must be known to hakmem. */
static inline void test_begin(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--long") == 0)
      test_long = 1;
    if (strcmp(argv[i], "--seed") == 0 && i + 1 < argc)
      test_seed = strtoull(argv[i + 1], NULL, 0);
  }
#ifndef TEST_CORE
  if (getenv("TEST_EXPECT_HAKMEM")) {
#ifndef TEST_STATIC
    CHECK_SAY(hak_usable_size != NULL, "hakmem is not loaded");
#endif
    void *block = test_opaque(malloc(100));
    CHECK_SAY(hak_usable_size(block) >= 100, "malloc is not hakmem's");
    free(block);
  }
#endif
}
