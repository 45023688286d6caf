/* signal: a handler that allocates and frees while its thread is in the slow path: no deadlock, and no damage. The
 * handler runs from inside the n-th system call that the allocator makes, so with the locks of the slow path held; then
 * with the mark of the slow path set by hand, for cases that make no system call. */
#include "unit.h"

#include "api/alloc.h"

static long interrupted_call; /* the handler runs in this one, counted from 1 */
static long calls;
static volatile sig_atomic_t handled;

static void interrupt(void) {
  if (++calls == interrupted_call)
    raise(SIGUSR1);
}

TEST_WRAP(bool, os_commit, void *address, size_t size) {
  interrupt();
  return __real_os_commit(address, size);
}
TEST_WRAP(bool, os_purge, void *address, size_t size) {
  interrupt();
  return __real_os_purge(address, size);
}

static void *early[64]; /* blocks the handler frees */

static void allocate_and_free(void) {
  const size_t sizes[] = {0, 100, 1000, 30000, 262144, 300000, 3000000};
  for (unsigned i = 0; i < sizeof sizes / sizeof sizes[0]; i++) {
    unsigned char *block = hak_malloc(sizes[i]);
    CHECK(block != NULL && hak_usable_size(block) >= sizes[i]);
    memset(block, 0x77, sizes[i]);
    unsigned char *more = hak_realloc(block, sizes[i] * 2 + 1);
    CHECK(more != NULL && (sizes[i] == 0 || more[sizes[i] - 1] == 0x77));
    hak_free(more);
  }
  hak_free(hak_malloc(300000));                             /* an odd number of units */
  for (size_t size = 16; size < 200000; size += size / 4) { /* what stands in for a block is longer than its class */
    free_sized_slow(CHECK_GOT(hak_malloc(size)), size);
  }
  for (size_t alignment = 32; alignment <= HAK_SMALL_MAX; alignment *= 2) {
    char *block = test_opaque(hak_aligned_alloc(alignment, 10));
    char *odd = hak_malloc(300000);
    CHECK(block != NULL && ((uintptr_t)block & (alignment - 1)) == 0);
    hak_free(odd);
    hak_free(block);
  }
}

static void handler(int number) {
  int kept = errno;
  allocate_and_free();
  unit_free(early, 64);
  handled = 1;
  errno = kept;
}

#define LIVE 1200u

/* In a child for each n: takes and purges extents. Exits with 3 when there is no n-th call. */
static void scenario(void *n) {
  static unsigned char *live[LIVE];
  static const size_t sizes[] = {16, 700, 20000, 262144};
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  options_parse("HAKMEM_PROFILE", 14, "lean"); /* purges at once */
  options_parse("HAKMEM_KEEP_MB", 14, "0");
  for (unsigned i = 0; i < 64; i++)
    early[i] = hak_malloc(48);
  hak_free(hak_malloc(3000000)); /* the page map knows where large objects lie */
  signal(SIGUSR1, handler);
  calls = 0;
  interrupted_call = *(long *)n;
  for (unsigned round = 0; round < 2; round++) {
    for (unsigned i = 0; i < LIVE; i++) {
      size_t size = sizes[i % 8 ? i % 3 : 3];
      live[i] = hak_malloc(size);
      memset(live[i], (int)i, 16);
    }
    for (unsigned i = 0; i < LIVE; i++) {
      for (unsigned b = 0; b < 16; b++)
        CHECK(live[i][b] == (unsigned char)i);
      hak_free(live[i]);
    }
    extents_release(ROW_BYTES);
  }
  UNIT_DEBUG(CHECK(heap_is_valid(heap_current()) && extents_are_valid()));
  _exit(handled ? 0 : 3);
}

UNIT_TEST(a_handler_may_run_in_any_system_call_of_the_slow_path) {
  for (long n = 1;; n++) {
    char said[256];
    int status = unit_in_child(scenario, &n, said, sizeof said);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
      assert_true(n > 8);
      return;
    }
    if (status != 0)
      fail_msg("interrupted in call %ld: status 0x%x: %s", n, (unsigned)status, said);
  }
}

UNIT_TEST_IN_CHILD(the_slow_path_is_not_entered_twice) {
  void *blocks[1000];
  for (unsigned i = 0; i < 1000; i++)
    blocks[i] = hak_malloc(48);
  struct heap *heap = heap_current();
  unit_heap_attach();
  void *remote = hak_malloc(48);
  unit_heap_become(heap);
  CHECK(slow_path_begin());
  lock_take(&heap_pool(heap)->lock);
  allocate_and_free();
  unit_free(blocks, 1000);
  hak_free(remote);
  CHECK(hak_trim(0) == 0);
  lock_give(&heap_pool(heap)->lock);
  slow_path_end();
  allocate_and_free();
  UNIT_DEBUG(CHECK(heap_is_valid(heap)));
}

UNIT_MAIN(unit_alone())
