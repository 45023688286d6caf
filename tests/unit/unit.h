/* unit.h: what the unit tests share: cmocka, check.h, the core's own headers, several heaps in
 * one thread, and functions that must end the process.
 *
 * The tests are linked with hakmem_core, so malloc is libc's and hak_malloc is ours.
 */
#pragma once

#include "base/counters.h"
#include "base/options.h"
#include "base/size_class.h"
#include "base/words.h"
#include "budget/usage.h"
#include "hakmem/hakmem.h"
#include "heap/bins.h"
#include "heap/ids.h"
#include "heap/slow_path.h"
#include "large/big_cache.h"
#include "large/large.h"
#include "os/os.h"
#include "pages/extent.h"
#include "pages/metadata.h"
#include "pages/page_map.h"
#include "pages/run.h"
#include "reclaim/reclaim.h"
#include "threads/registry.h"

#include "../child.h"
#include "../threads.h"

#include <setjmp.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/syscall.h>

#include <cmocka.h>

/* Whole-structure checks, where the build has them. */
#ifdef HAK_DEBUG
#define UNIT_DEBUG(statement) statement
#else
#define UNIT_DEBUG(statement) ((void)0)
#endif
#define UNIT_VALID(is_valid) UNIT_DEBUG(assert_true(is_valid))
#define UNIT_HEAP_VALID(heap) ((void)(heap), UNIT_VALID(heap_is_valid(heap)))
#define UNIT_EXTENTS_VALID() UNIT_VALID(extents_are_valid())
#define UNIT_SLABS_VALID(set) ((void)(set), UNIT_VALID(slab_set_is_valid(set)))

#define UNIT_SEED 20251u

/* UNIT_TEST(name) { ... } is a test. unit_run runs the tests of a program in the order in which they stand; one that
 * needs a fresh process is UNIT_TEST_FIRST; the body of UNIT_TEST_IN_CHILD has CHECK, not cmocka's assertions. */
static struct CMUnitTest unit_tests[64];
static size_t unit_test_count;

static inline void unit_add(size_t place, struct CMUnitTest test) {
  if (unit_test_count == sizeof unit_tests / sizeof *unit_tests)
    abort();
  memmove(&unit_tests[place + 1], &unit_tests[place], (unit_test_count++ - place) * sizeof test);
  unit_tests[place] = test;
}

#define UNIT_TEST_AT(place, test, setup, teardown)                                                                     \
  static void test(void **);                                                                                           \
  __attribute__((constructor)) static void test##_add(void) {                                                          \
    unit_add(place, (struct CMUnitTest)cmocka_unit_test_setup_teardown(test, setup, teardown));                        \
  }                                                                                                                    \
  static void test(void **unused __attribute__((unused)))
#define UNIT_TEST_BETWEEN(test, setup, teardown) UNIT_TEST_AT(unit_test_count, test, setup, teardown)
#define UNIT_TEST(test) UNIT_TEST_BETWEEN(test, NULL, NULL)
/* One without threads, which takes long under TSan and shows nothing there. */
#ifdef HAK_TSAN
#define UNIT_TEST_OF_ONE_THREAD(test, setup, teardown) static __attribute__((unused)) void test(void)
#else
#define UNIT_TEST_OF_ONE_THREAD(test, setup, teardown) UNIT_TEST_BETWEEN(test, setup, teardown)
#endif
#define UNIT_TEST_FIRST(test) UNIT_TEST_AT(0, test, NULL, NULL)

#define UNIT_TEST_IN_CHILD(test)                                                                                       \
  static void test##_in_child(void *);                                                                                 \
  UNIT_TEST(test) { unit_passes_in_child(test##_in_child, NULL); }                                                     \
  static void test##_in_child(void *unused __attribute__((unused)))

static inline int unit_run(CMFixtureFunction setup, CMFixtureFunction teardown) {
  return _cmocka_run_group_tests("tests", unit_tests, unit_test_count, setup, teardown);
}

/* A positive control has a word on its command line. Then something lies, and the test must fail. */
static const char *unit_word = "";
static inline bool unit_lies(const char *word) { return strcmp(unit_word, word) == 0; }

/* The main of most programs: does `begin`, if anything, and runs the tests. */
#define UNIT_MAIN(begin)                                                                                               \
  int main(int argc, char **argv) {                                                                                    \
    unit_word = argc > 1 ? argv[1] : "";                                                                               \
    begin;                                                                                                             \
    return unit_run(NULL, NULL);                                                                                       \
  }

/* How many times slower this build's code is than the check build's, about. */
#if TEST_EMULATED
#define UNIT_SLOWNESS 16u
#elif defined(HAK_TSAN)
#define UNIT_SLOWNESS 8u
#elif defined(__SANITIZE_ADDRESS__)
#define UNIT_SLOWNESS 2u
#else
#define UNIT_SLOWNESS 1u
#endif

/* The number of rounds: `quick`, fewer in a slow build; with UNIT_LONG in the environment `times` as many as quick. */
static inline unsigned unit_rounds(unsigned quick, unsigned times) {
  return getenv("UNIT_LONG") ? quick * times : quick > UNIT_SLOWNESS ? quick / UNIT_SLOWNESS : 1;
}

static inline void unit_folder_make(char *path, size_t bytes) {
  const char *folder = getenv("TMPDIR");
  snprintf(path, bytes, "%.150s/hakmem-unit-XXXXXX", folder ? folder : "/tmp");
  assert_non_null(mkdtemp(path));
}

/* Purges what was freed at any time; keeps nothing. */
#define UNIT_ANY_TIME UINT64_MAX
#define UNIT_EVERYTHING purge_by_preset(0, UNIT_ANY_TIME)

static inline void unit_option(const char *environment, const char *value) {
  if (options_parse(environment, strlen(environment), value) != OPTION_OK)
    abort();
}

/* The lower layers alone: nobody above them would read the limits when they ask for it. Each heap has a pool of its
 * own, unless a test says otherwise, and the machine has one node. */
__attribute__((constructor)) static void unit_prepare(void) {
  usage_look();
  atomic_store(&os_nodes_counted, 1);
  unit_option("HAKMEM_POOLS", "1024");
}

/* What the machine and other threads would add to the books: the background thread, the cgroup's limits,
 * huge pages. */
static inline void unit_alone(void) {
  unit_option("HAKMEM_BACKGROUND", "off");
  unit_option("HAKMEM_CGROUP", "off");
  unit_option("HAKMEM_HUGE", "off");
}

/* Does it in a slow path. */
#define UNIT_SLOWLY(statement)                                                                                         \
  do {                                                                                                                 \
    assert_true(slow_path_begin());                                                                                    \
    statement;                                                                                                         \
    slow_path_end();                                                                                                   \
  } while (0)

/* What the call gives, which must not be NULL. */
#define UNIT_GOT(call) unit_got(call, __FILE__, __LINE__, #call)

static inline void *unit_got(const void *got, const char *file, int line, const char *call) {
  _assert_true(got != NULL, call, file, line);
  return (void *)(uintptr_t)got;
}

/* An array of blocks of one size. */
static inline void unit_alloc(void *blocks, size_t count, size_t size) {
  for (size_t i = 0; i < count; i++)
    ((void **)blocks)[i] = UNIT_GOT(hak_malloc(size));
}
static inline void unit_free(void *blocks, size_t count) {
  for (size_t i = 0; i < count; i++)
    hak_free(((void **)blocks)[i]);
}

/* A heap of its own for what the calling thread does next. The thread keeps the lifelines of all
 * heaps it got, so to the rest of the program they are so many living threads. */
static inline struct heap *unit_heap_attach(void) {
  hak_thread = 0;
  if (!slow_path_begin())
    abort();
  struct heap *heap = heap_attach();
  slow_path_end();
  return heap;
}

static inline void unit_heap_become(struct heap *heap) {
  hak_self = &heap->front;
  hak_thread = (uintptr_t)heap;
}

/* Meanwhile the pool of the calling thread's heap takes no free blocks of other pools. */
static inline void unit_others_lock(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    if (pool != heap_pool(heap_current()))
      lock_take(&pool->lock);
}
static inline void unit_others_unlock(void) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    if (pool != heap_pool(heap_current()))
      lock_give(&pool->lock);
}

static inline void unit_sweep(void) { UNIT_SLOWLY(heaps_sweep_all(false)); }

/* As if the heap's thread had ended: a sweep finds the heap. */
static inline void unit_heap_give_up(struct heap *heap) {
  unit_heap_become(heap);
  UNIT_SLOWLY(slow_path_part_from_heap());
  lifeline_drop(&heap->lifeline);
}

/* Ends what earlier tests left. */
static inline void unit_pools_clear(void) {
  for (struct heap *heap = heap_next(NULL); heap; heap = heap_next(heap))
    if (heap_is_owned(heap->id))
      unit_heap_give_up(heap);
  unit_sweep();
  assert_int_equal(pools_heaps(), 0);
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    assert_int_equal(atomic_load(&pool->heaps), 0);
    assert_int_equal(pool->slabs.taken_bytes, 0);
  }
}

/* Skips the test, and says why. */
static inline void unit_skip_if(bool is_so, const char *why) {
  if (!is_so)
    return;
  print_message("skipped: %s\n", why);
  skip();
}

/* The end of a thread can be noticed: not under emulators that do not tell the kernel of robust mutexes. */
static inline bool unit_ends_are_noticed(void) {
  void *head;
  size_t length;
  return syscall(SYS_get_robust_list, 0, &head, &length) == 0;
}
static inline void unit_needs_ends(void) {
  unit_skip_if(!unit_ends_are_noticed(), "the emulator has no robust lists, so a thread's end is not noticed");
}

/* A process with threads is forked: not under ThreadSanitizer, which cannot follow. */
static inline void unit_needs_forks(void) {
  unit_skip_if(TEST_TSAN, "a process with threads of its own is not forked here");
}

struct unit_body {
  void (*run)(void *);
  void *argument;
};
static inline void unit_body_run(void *body) {
  for (int number = 1; number < 32; number++) /* cmocka's handlers would go on with its next test */
    signal(number, SIG_DFL);
  alarm(300);
  ((struct unit_body *)body)->run(((struct unit_body *)body)->argument);
}

/* As test_child_says. A child that hangs is killed. */
static inline int unit_in_child(void (*body)(void *), void *argument, char *said, size_t said_bytes) {
  struct unit_body both = {.run = body, .argument = argument};
  return test_child_says(unit_body_run, &both, said, said_bytes);
}

/* body must come to its end in a child, without a word. There CHECK ends the child. */
static inline void unit_passes_in_child(void (*body)(void *), void *argument) {
  char said[512];
  int status = unit_in_child(body, argument, said, sizeof said);
  if (said[0] || status != 0)
    fail_msg("status 0x%x: %s", (unsigned)status, said);
}

/* body must end the process with exactly this sentence and SIGABRT. */
static inline void unit_must_die(void (*body)(void *), void *argument, const char *before, const void *block,
                                 const char *after) {
  char said[512], wanted[512];
  int status = unit_in_child(body, argument, said, sizeof said);
  snprintf(wanted, sizeof wanted, "hakmem: %s0x%lx%s\n", before, (unsigned long)(uintptr_t)block, after);
  assert_string_equal(said, wanted);
  assert_true(WIFSIGNALED(status));
  assert_int_equal(WTERMSIG(status), SIGABRT);
}
