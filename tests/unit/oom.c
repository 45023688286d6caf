/* oom: memory is out at every place once. The OS layer's calls that can fail are wrapped; a scenario
 * that walks through all of the allocator runs in a fresh process for each n, in which the n-th such
 * call fails: alone, or with all calls after it, or with the next seven. Each time
 *   - a request succeeds, or comes back as NULL with ENOMEM; nothing else happens
 *   - blocks that live keep their contents
 *   - once the system is well again, every request succeeds, all blocks can be freed, and nothing
 *     is counted as live
 *
 * Positive control: with an argument, the wrappers lie instead (they say done and do nothing, or hand
 * out memory twice). The test must fail then.
 *     unit-oom commit | move | map
 */
#include "heap/envelope.h"
#include "unit.h"

enum fault { FAULT_ONCE, FAULT_SOME, FAULT_ALWAYS, FAULT_KINDS };
static const char *const fault_names[FAULT_KINDS] = {"alone", "and 7 more", "and all after it"};
#define SOME 8

static struct {
  enum fault fault;
  long first;         /* the call that fails, counted from 1; 0: all is well */
  _Atomic long calls; /* made so far */
  bool closed;        /* refuses, and does not count */
} os;

static bool refused(void) {
  if (os.closed)
    return true;
  long n = atomic_fetch_add(&os.calls, 1) + 1;
  if (os.first == 0 || n < os.first)
    return false;
  return os.fault == FAULT_ALWAYS || n < os.first + (os.fault == FAULT_SOME ? SOME : 1);
}

TEST_WRAP(void *, os_map, size_t size, size_t alignment) {
  static _Atomic(void *) last;
  if (refused())
    return unit_lies("map") ? atomic_load(&last) : NULL;
  void *mapped = __real_os_map(size, alignment);
  if (size < ROW_BYTES) /* not the page map's leaves */
    atomic_store(&last, mapped);
  return mapped;
}
TEST_WRAP(void *, os_reserve, size_t size, size_t alignment) {
  return refused() ? NULL : __real_os_reserve(size, alignment);
}
TEST_WRAP(bool, os_commit, void *address, size_t size) {
  return refused() ? unit_lies("commit") : __real_os_commit(address, size);
}
TEST_WRAP(bool, os_resize, void *address, size_t size, size_t size_wanted) {
  return !refused() && __real_os_resize(address, size, size_wanted);
}
TEST_WRAP(void *, os_move, void *address, size_t size, size_t size_wanted) {
  if (refused())
    return unit_lies("move") ? __real_os_map(size_wanted, UNIT_BYTES) : NULL;
  return __real_os_move(address, size, size_wanted);
}

/* The kernel refuses to unmap when there are too many mappings. */
TEST_WRAP(bool, os_unmap, void *address, size_t size) { return !refused() && __real_os_unmap(address, size); }

struct live {
  unsigned char *block;
  size_t size;
  unsigned char seed;
};
#define LIVE_MAX 8192u
struct holder {
  struct live live[LIVE_MAX];
  unsigned count;
  unsigned refusals;
};

static unsigned char content(const struct live *live, size_t i) {
  return (unsigned char)(live->seed + i * 31 + (i >> 8));
}

/* Places that are written and checked: a block's first KiB, then ever fewer, and its last byte. */
static size_t next_place(size_t i) { return i + 1 + (i < 1024 ? 0 : 3 * i); }

static void fill(struct live *live) {
  for (size_t i = 0; i < live->size; i = next_place(i))
    live->block[i] = content(live, i);
  live->block[live->size - 1] = content(live, live->size - 1);
}

static void verify_place(const struct live *live, size_t i) {
  if (live->block[i] == content(live, i))
    return;
  dprintf(2, "byte %zu of %zu at %p\n", i, live->size, (void *)live->block);
  _exit(1);
}

static void verify(const struct live *live, size_t bytes) {
  for (size_t i = 0; i < bytes; i = next_place(i))
    verify_place(live, i);
  if (bytes == live->size)
    verify_place(live, bytes - 1);
}

/* Takes the result of an allocating call, made after errno became 0. */
static bool hold(struct holder *holder, void *block, size_t size) {
  if (block == NULL) {
    CHECK(errno == ENOMEM);
    holder->refusals++;
    return false;
  }
  CHECK(holder->count < LIVE_MAX);
  CHECK(hak_usable_size(block) >= size);
  struct live *live = &holder->live[holder->count++];
  *live = (struct live){block, size, (unsigned char)(holder->count * 7 + 1)};
  fill(live);
  return true;
}

#define HOLD(holder, size, call) (errno = 0, hold((holder), (call), (size)))

static void hold_zeroed(struct holder *holder, size_t size) {
  errno = 0;
  unsigned char *block = hak_calloc(size / 8, 8);
  for (size_t i = 0; block && i < size / 8 * 8; i = next_place(i))
    CHECK(block[i] == 0);
  hold(holder, block, size / 8 * 8);
}

static void hold_aligned(struct holder *holder, size_t alignment, size_t size) {
  errno = 0;
  void *block = test_opaque(hak_aligned_alloc(alignment, size));
  CHECK(((uintptr_t)block & (alignment - 1)) == 0);
  hold(holder, block, size);
}

static void resize(struct holder *holder, unsigned i, size_t size) {
  if (i >= holder->count)
    return;
  struct live *live = &holder->live[i];
  errno = 0;
  unsigned char *block = hak_realloc(live->block, size);
  if (block == NULL) {
    CHECK(errno == ENOMEM);
    holder->refusals++;
    verify(live, live->size);
    return;
  }
  live->block = block;
  size_t kept = min_size(live->size, size);
  live->size = SIZE_MAX; /* its last byte may be gone */
  verify(live, kept);
  live->size = size;
  fill(live);
}

static void drop(struct holder *holder, unsigned i) {
  verify(&holder->live[i], holder->live[i].size);
  errno = 4711;
  hak_free(holder->live[i].block);
  CHECK(errno == 4711);
  holder->live[i] = holder->live[--holder->count];
}

static void drop_to(struct holder *holder, unsigned count) {
  while (holder->count > count)
    drop(holder, holder->count - 1);
}

static void verify_all(const struct holder *holder) {
  for (unsigned i = 0; i < holder->count; i++)
    verify(&holder->live[i], holder->live[i].size);
}

/* Then each new table needs the system. */
static bool tables_used_up;
static void use_up_tables(void) {
  if (!tables_used_up)
    return;
  os.closed = true;
  for (size_t bytes = 65536; bytes >= CACHE_LINE; bytes /= 2)
    while (metadata_take_forever(bytes) != NULL)
      ;
  os.closed = false;
}

static void work_in_thread(struct holder *own, struct holder *others) {
  for (unsigned i = 0; i < 300; i++) {
    size_t size = 16 + i * 13 % 2000;
    HOLD(own, size, hak_malloc(size));
  }
  drop_to(others, 0); /* through envelopes, to their owner */
  while (own->count > 200)
    drop(own, own->count / 2);
}

static struct holder mine, handed_over, of_thread[3];

static void *thread_body(void *argument) {
  work_in_thread(&of_thread[(size_t)argument], &handed_over);
  return NULL;
}

static void run_thread(size_t index) {
  use_up_tables();
  test_thread_run(thread_body, (void *)index);
}

static void small_and_mid(void) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++)
    for (unsigned i = 0; i < 2; i++)
      HOLD(&mine, class_bytes(cls) - i, hak_malloc(class_bytes(cls) - i));
  for (size_t alignment = 16; alignment <= HAK_SMALL_MAX; alignment *= 2)
    hold_aligned(&mine, alignment, alignment / 2 + 40);
  hold_zeroed(&mine, 1000);
  hold_zeroed(&mine, 100000);
  for (unsigned i = 0; i < 40; i++)
    resize(&mine, i * 3, mine.count ? mine.live[i * 3 % mine.count].size * 3 + 5 : 0);
}

static void large(void) {
  unsigned first = mine.count;
  HOLD(&mine, 300000, hak_malloc(300000));
  HOLD(&mine, 1500000, hak_malloc(1500000));
  hold_zeroed(&mine, 700000);
  hold_aligned(&mine, 1 << 20, 5000);
  hold_aligned(&mine, 4 << 20, 500000);
  for (unsigned i = first; i < mine.count; i++) {
    resize(&mine, i, 600000);
    resize(&mine, i, 4500000);
    resize(&mine, i, 400000);
  }
  while (mine.count > first + 2)
    drop(&mine, first);
  hold_zeroed(&mine, 390000); /* from what was freed */
  resize(&mine, first, 5000);
}

/* Above 32 MiB: mappings of their own, which move to grow. */
static void mappings(void) {
  unsigned first = mine.count;
  HOLD(&mine, 40000000, hak_malloc(40000000));
  hold_zeroed(&mine, 34000000);
  hold_aligned(&mine, 64 << 20, 33 << 20);
  for (unsigned i = first; i < mine.count; i++) {
    resize(&mine, i, 90000000);
    resize(&mine, i, 35000000);
    resize(&mine, i, 100000);
    resize(&mine, i, 36000000);
  }
  for (unsigned i = 0; i < 2; i++) {
    drop_to(&mine, first);
    hold_zeroed(&mine, 35000000);
  }
}

/* One size from one place: the cache. */
static void cached(void) {
  for (unsigned i = 0; i < 8; i++) {
    unsigned before = mine.count;
    HOLD(&mine, 2000000, hak_malloc(2000000));
    if (mine.count > before)
      drop(&mine, before);
  }
}

static void bins_grow(void) {
  unsigned first = mine.count;
  for (unsigned i = 0; i < 3000; i++)
    HOLD(&mine, 48, hak_malloc(48));
  drop_to(&mine, first);
}

static void hand_over(unsigned blocks) {
  for (unsigned i = 0; i < blocks; i++) {
    size_t size = i % 50 == 0 ? 40000 : 24 + i % 500;
    HOLD(&handed_over, size, hak_malloc(size));
  }
}

/* More slabs than one commit step has, then gone again. */
static void many_slabs(void) {
  unsigned first = mine.count;
  for (unsigned i = 0; i < 100; i++)
    HOLD(&mine, 250000, hak_malloc(250000));
  drop_to(&mine, first);
  hak_trim(0);
}

static void books_must_be_whole(void) {
  for (uint32_t id = 1; id <= heap_count(); id++) {
    struct heap *heap = heap_by_id(id);
    lock_take(&heap_pool(heap)->lock);
    UNIT_DEBUG(CHECK(heap_is_valid(heap)));
    lock_give(&heap_pool(heap)->lock);
  }
  UNIT_DEBUG(CHECK(extents_are_valid() && big_cache_is_valid()));
}

static void scenario(void *argument) {
  setrlimit(RLIMIT_CORE, &(struct rlimit){0});
  use_up_tables();
  os.first = *(long *)argument;
  small_and_mid();
  large();
  mappings();
  cached();
  hand_over(600);
  run_thread(0);
  bins_grow();
  hand_over(300);
  run_thread(1);
  many_slabs();
  verify_all(&mine);
  verify_all(&of_thread[0]);
  drop_to(&of_thread[0], 0); /* a dead thread's blocks */
  large();
  run_thread(2);
  verify_all(&mine);
  bool reached = atomic_load(&os.calls) >= os.first;
  books_must_be_whole();

  os.first = 0; /* the system is well again */
  mine.refusals = handed_over.refusals = of_thread[0].refusals = of_thread[1].refusals = of_thread[2].refusals = 0;
  hand_over(100);
  small_and_mid();
  bins_grow();
  large();
  mappings();
  cached();
  run_thread(0);
  CHECK(mine.refusals + handed_over.refusals + of_thread[0].refusals == 0);
  struct holder *holders[] = {&mine, &handed_over, &of_thread[0], &of_thread[1], &of_thread[2]};
  for (unsigned i = 0; i < sizeof holders / sizeof holders[0]; i++)
    drop_to(holders[i], 0);
  if (heap_current())
    outbox_send_all(heap_current());
  hak_trim(0);
  hak_trim(0);
  books_must_be_whole();
  struct hak_stats stats;
  hak_stats_get(&stats);
  bool lost = stats.live_bytes != 0 && unit_ends_are_noticed(); /* else dead threads keep what was in their bins */
  if (lost)
    dprintf(2, "%zu bytes still count as live\n", stats.live_bytes);
  _exit(lost ? 1 : reached ? 0 : 3);
}

/* Every n is tried where most is checked. Other builds try one in so many, by another compiler, libc or processor. */
static long step(void) {
  if (getenv("UNIT_LONG"))
    return 1;
#ifdef HAK_DEBUG
  return 1;
#elif defined(__SANITIZE_ADDRESS__)
  return 5;
#else
  return UNIT_SLOWNESS > 1 ? 97 : 11;
#endif
}

static void run_all(enum fault fault) {
  os.fault = fault;
  for (long n = 1;; n += step()) {
    char said[512];
    int status = unit_in_child(scenario, &n, said, sizeof said);
    if (WIFEXITED(status) && WEXITSTATUS(status) == 3) {
      print_message("%ld calls failed in turn, %s\n", n - 1, fault_names[fault]);
      assert_true(n > 20); /* the wrappers are in force */
      return;
    }
    if (status != 0 || said[0] != 0)
      fail_msg("call %ld fails %s: status 0x%x: %s", n, fault_names[fault], (unsigned)status, said);
  }
}

UNIT_TEST(one_call_fails) { run_all(FAULT_ONCE); }
UNIT_TEST(a_few_calls_fail) { run_all(FAULT_SOME); }
UNIT_TEST(memory_stays_out) { run_all(FAULT_ALWAYS); }
UNIT_TEST(all_of_it_with_tables_used_up) {
  tables_used_up = true;
  for (enum fault fault = FAULT_ONCE; fault < FAULT_KINDS; fault++)
    run_all(fault);
}

static void begin(void) {
  unit_alone();
  if (*unit_word) { /* what is handed out twice may also end in a loop: 5 s of CPU for each child */
    setrlimit(RLIMIT_CPU, &(struct rlimit){5, 5});
    unit_test_count = 1;
  }
}

UNIT_MAIN(begin())
