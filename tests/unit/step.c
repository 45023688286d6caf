/* step: a signal handler that allocates, frees and resizes after each single instruction of the slow paths. The
 * processor traps after each instruction; the handler acts whenever its thread is in a slow path. Afterwards every
 * block of the program and of the handler has its own content, no block was lost, and the structures are whole.
 *
 * Promised is nothing for the few instructions of the fast path that move a bin's top: there the handler does nothing.
 * With checks (HAKMEM_PROFILE=secure) bins are empty, and the handler acts after every instruction.
 *
 * A search for the mapping that a foreign address may lie in takes no lock. So here the handler does what another thread
 * may do meanwhile: what lay before the address ends, after any of the search's instructions. And a handler may end its
 * thread after any instruction of a call that takes no lock: a free that fills an envelope, and with checks all calls.
 *
 * Positive control: with `open` the handler finds the bins as the slow path left them at that instruction. The test
 * must fail then. */
#include "count/tally.h"
#include "unit.h"

#include "api/alloc.h"
#include "checked/checked_cache.h"
#include "heap/envelope.h"
#include "heap/queue.h"
#include "large/range.h"

#include <ucontext.h>

#if defined(__x86_64__) && !defined(__SANITIZE_ADDRESS__) && !defined(HAK_TSAN)

static bool is_armed;
static bool is_checked;
static volatile long steps, acts;

/* Another step is not taken in the handler: the kernel clears the flag for it. */
static inline void step_begin(void) {
  if (is_armed)
    __asm__ volatile("sub $128, %%rsp; pushfq; orq $0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
}
static inline void step_end(void) {
  __asm__ volatile("sub $128, %%rsp; pushfq; andq $~0x100, (%%rsp); popfq; add $128, %%rsp" ::: "memory", "cc");
}

/* --- the handler's blocks --- */

#define KEPT 256u
static struct handled {
  unsigned char *block;
  size_t size;
  unsigned char mark;
} kept[KEPT];

static void drop(struct handled *k) {
  for (size_t i = 0; i < k->size; i += i < 64 ? 1 : 509)
    CHECK_SAY(k->block[i] == k->mark, "the handler's block of %zu bytes lost its content", k->size);
  hak_free(k->block);
  k->block = NULL;
}

static void keep(struct handled *k, size_t size, unsigned char mark) {
  k->block = CHECK_GOT(hak_malloc(size));
  CHECK(hak_usable_size(k->block) >= size);
  k->size = size;
  k->mark = mark;
  memset(k->block, mark, size);
}

#define EARLY 512u
static unsigned char *early[EARLY]; /* the program's, which the handler frees */
static unsigned early_count;

static void act(void) {
  static const size_t sizes[] = {24, 100, 100, 48, 200, 16, 640, 100, 48};
  struct handled *k = &kept[acts % KEPT];
  if (k->block)
    drop(k);
  keep(k, sizes[acts % (sizeof sizes / sizeof sizes[0])], (unsigned char)(0x80 | acts));
  if (acts % 64 == 3) {
    k->block = CHECK_GOT(hak_realloc(k->block, k->size * 2));
    memset(k->block, k->mark, k->size *= 2);
  }
  if (acts % 16384 == 5) { /* a large one */
    drop(k);
    keep(k, acts % 3 ? 300000 : 17000, k->mark);
  }
  if (acts % 1021 == 7 && early_count > 0)
    hak_free(early[--early_count]);
  acts++;
}

/* Frees or allocates, by chance, so that what is ready changes by one. */
static void act_checked(void) {
  struct handled *k = &kept[(uint64_t)acts * 0x9e3779b97f4a7c15 >> 32 & (KEPT - 1)];
  if (k->block)
    drop(k);
  else
    keep(k, acts % 3 ? 100 : 24, (unsigned char)(0x80 | acts));
  acts++;
}

static void on_step(int number) {
  steps++;
  if (!thread_is_busy() && !is_checked)
    return;
  int kept_errno = errno;
  if (is_checked) {
    act_checked();
  } else if (unit_lies("open")) {
    uintptr_t thread = hak_thread;
    struct hak_front *self = hak_self;
    hak_self = heap_current() ? &heap_current()->front : self;
    act();
    hak_self = self;
    hak_thread = thread;
  } else {
    act();
  }
  errno = kept_errno;
}

/* --- what it interrupts --- */

#define LIVE 300u
static unsigned char *live[LIVE];
static size_t live_size[LIVE];

/* Of the instructions one in so many is tried where all would take long: of those that are shipped most. musl's build
 * has those of the release build, which the same compiler makes, but for a few. */
#if !defined(__GLIBC__)
#define APART 8
#elif defined(__clang__) || defined(HAK_DEBUG)
#define APART 4
#else
#define APART 2
#endif

/* A trap takes long. So only calls that take the slow path are made in steps: all of them in long runs, else one in
 * 2 * APART. */
static bool is_next(void) {
  static unsigned calls;
  return getenv("UNIT_LONG") != NULL || calls++ % (2 * APART) == 0;
}
static bool malloc_is_slow(size_t size) {
  return size > HAK_SMALL_MAX || hak_self->bins[hak_class_of(size)].top[-1] == NULL;
}
static bool free_is_slow(void *block) {
  uint32_t offset = (uint16_t)map_entry(block) ^ hak_self->key;
  struct hak_bin *bin = (struct hak_bin *)(void *)((char *)hak_self->bins + offset);
  return offset >= HAK_ENTRY_END || bin->top == bin->end;
}

static void *stepped_malloc(size_t size) {
  bool is_slow = malloc_is_slow(size) && is_next();
  if (is_slow)
    step_begin();
  void *block = hak_malloc(size);
  if (is_slow)
    step_end();
  return block;
}

static void stepped_free(void *block) {
  bool is_slow = free_is_slow(block) && is_next();
  if (is_slow)
    step_begin();
  hak_free(block);
  if (is_slow)
    step_end();
}

static void put(unsigned i, size_t size) {
  live[i] = CHECK_GOT(stepped_malloc(size));
  live_size[i] = size;
  memset(live[i], (int)(i & 0x7f), size < 64 ? size : 64);
}

static void take(unsigned i) {
  for (size_t b = 0; b < live_size[i] && b < 64; b++)
    CHECK_SAY(live[i][b] == (i & 0x7f), "the program's block of %zu bytes lost its content", live_size[i]);
  stepped_free(live[i]);
  live[i] = NULL;
}

/* Refills, growing bins, overflows, flushes, slabs that open and close. */
static void small_ones(void) {
  for (unsigned i = 0; i < LIVE; i++)
    put(i, i % 5 ? 100 : i % 2 ? 3000 : 24);
  for (unsigned i = 0; i < LIVE; i++)
    take(i);
}

/* With checks each byte that is cleared may be a step, so a few objects must do. */
static void large_ones(unsigned objects) {
  for (unsigned i = 0; i < objects; i++)
    put(i, 300000 + i * 70000);
  unsigned last = objects - 1;
  step_begin();
  live[last] = hak_realloc(live[last], live_size[last] + 70000); /* the last one grows where it lies */
  step_end();
  CHECK(live[last] != NULL);
  for (unsigned i = 0; i < objects; i++)
    take(i);
  put(0, (size_t)33 << 20); /* a mapping */
  take(0);
}

static void of_another_heap(void) {
  struct heap *own = heap_current();
  struct heap *other = unit_heap_attach();
  for (unsigned i = 0; i < LIVE; i++)
    put(i, 100);
  unit_heap_become(own);
  for (unsigned i = 0; i < LIVE; i++)
    take(i);
  unit_heap_become(other);
  small_ones();
  unit_heap_become(own);
}

static void count(const char *value) {
  unit_option("HAKMEM_COUNT", value);
  tally_apply();
  small_ones();
}

static void make_queue(struct heap *heap) {
  lock_take(&heap_pool(heap)->lock);
  heap->is_queue = true;
  heap->queue = (struct queue){.bytes = slab_set_taken_bytes(&heap_pool(heap)->slabs), .in_order = UINT8_MAX};
  heap_split(heap, true);
  lock_give(&heap_pool(heap)->lock);
}

static void as_queue(void) {
  struct heap *heap = heap_current();
  static void *set[4096]; /* a large one, so that the heap stays a queue */
  unit_alloc(set, 4096, 1100);
  make_queue(heap);
  small_ones();
  small_ones();
  CHECK(heap->is_queue);
  unit_free(set, 4096);
  lock_take(&heap_pool(heap)->lock);
  queue_end(heap);
  lock_give(&heap_pool(heap)->lock);
}

static void end(void) {
  is_armed = false;
  for (unsigned i = 0; i < KEPT; i++)
    if (kept[i].block)
      drop(&kept[i]);
  while (early_count > 0)
    hak_free(early[--early_count]);
  small_ones();
  hak_trim(0);
  CHECK(!deferred_waits());
  for (uint32_t id = 1; id <= heap_count(); id++)
    UNIT_DEBUG(CHECK(heap_is_valid(heap_by_id(id))));
  UNIT_DEBUG(CHECK(extents_are_valid()));
  size_t taken = 0;
  for (uint32_t id = 1; id <= heap_count(); id++) {
    unit_heap_become(heap_by_id(id));
    hak_trim(0);
  }
  for (uint32_t id = 1; id <= heap_count(); id++)
    taken += slab_set_taken_bytes(&heap_pool(heap_by_id(id))->slabs);
  CHECK_SAY(taken == 0, "%zu bytes of blocks were lost", taken);
  CHECK_SAY(acts >= 20000 / APART, "only %ld steps of %ld were in slow paths", acts, steps);
}

UNIT_TEST_IN_CHILD(a_handler_may_act_at_each_instruction) {
  unit_option("HAKMEM_PROFILE", "lean"); /* gives back at once */
  for (early_count = 0; early_count < EARLY; early_count++)
    early[early_count] = hak_malloc(early_count % 3 ? 100 : 2000);
  signal(SIGTRAP, on_step);
  is_armed = true;
  small_ones();
  small_ones();
  large_ones(6);
  step_begin();
  hak_trim(0);
  step_end();
  of_another_heap();
  as_queue();
  count("1");
  count("0");
  end();
}

static void check_blocks(void) {
  unit_option("HAKMEM_PROFILE", "secure");
  struct pool *pools[CHECKED_POOLS];
  for (unsigned i = 0; i < CHECKED_POOLS; i++)
    pools[i] = pool_make_shared();
  checked_begin(pools);
}

UNIT_TEST_IN_CHILD(a_handler_may_act_while_blocks_are_checked) {
  check_blocks();
  signal(SIGTRAP, on_step);
  is_armed = is_checked = true;
  small_ones();
  large_ones(1);
  small_ones();
  end();
}

/* --- a queue that a handler ends --- */

static long act_at;
static unsigned char *freed_by_handler;
static bool is_ended_by_handler;

/* What a slow path of the handler does, if it may have one. */
static void on_step_of_queue(int number) {
  if (++steps != act_at)
    return;
  struct heap *heap = heap_current();
  hak_free(freed_by_handler);
  is_ended_by_handler = slow_path_begin();
  if (!is_ended_by_handler)
    return;
  lock_take(&heap_pool(heap)->lock);
  queue_end(heap);
  lock_give(&heap_pool(heap)->lock);
  slow_path_end();
}

/* Returns how often a block lies in its bin, and checks the bin. */
static unsigned times_in_bin(const struct heap *heap, unsigned cls, const void *block) {
  const struct bin_state *state = &heap->bin_state[cls];
  const struct hak_bin *bin = bin_of((struct heap *)heap, cls);
  CHECK((uintptr_t)bin->end % sizeof(void *) == 0 && bin->end - state->base < state->slots);
  unsigned times = 0;
  for (void **slot = bin_bottom((struct heap *)heap, cls); slot < bin->top; slot++)
    times += *slot == block;
  return times;
}

/* is_missed: as after a malloc that found the bin empty. Returns false if the call was over before. */
static bool queue_ends_at_step(long step, size_t size, bool is_missed) {
  struct heap *heap = heap_current();
  unsigned cls = hak_class_of(size);
  make_queue(heap);
  freed_by_handler = CHECK_GOT(hak_malloc(size));
  for (unsigned i = 0; i < 2; i++)
    live[i] = CHECK_GOT(hak_malloc(size));
  for (unsigned i = 0; i < 2; i++)
    hak_free(live[i]);
  struct hak_bin *bin = hak_front_bin(hak_self, size);
  CHECK(queue_is_stack(bin) == (size > 1000));
  act_at = step;
  steps = 0;
  is_ended_by_handler = false;
  CHECK(!is_missed || split_try(bin) == NULL);
  step_begin();
  void *block = queue_pop(bin, is_missed);
  step_end();
  bool is_within = steps >= act_at;
  if (!is_within)
    hak_free(freed_by_handler);
  if (block != NULL)
    CHECK_SAY(times_in_bin(heap, cls, block) == 0, "the block is given out and ready, step %ld", step);
  else
    CHECK_SAY(is_ended_by_handler, "no block, step %ld", step);
  unsigned ready = times_in_bin(heap, cls, freed_by_handler);
  CHECK_SAY(ready + (block == freed_by_handler) == 1, "the handler's block is lost, step %ld", step);
  hak_free(block);
  lock_take(&heap_pool(heap)->lock);
  queue_end(heap);
  lock_give(&heap_pool(heap)->lock);
  UNIT_DEBUG(CHECK(heap_is_valid(heap)));
  return is_within;
}

UNIT_TEST_IN_CHILD(a_handler_may_end_a_queue_at_each_instruction) {
  static void *many[1000];
  unit_alloc(many, 1000, 100); /* the bin grows */
  unit_free(many, 1000);
  unit_alloc(many, 20, 100); /* so that it is not full */
  signal(SIGTRAP, on_step_of_queue);
  is_armed = true;
  for (size_t size = 100; size <= 3000; size += 2900) { /* the oldest block of a long bin, the newest one of a short */
    for (unsigned i = 0; i < 2; i++) {
      for (long step = 1; queue_ends_at_step(step, size, i == 1);)
        step++;
      CHECK(act_at >= 20);
    }
  }
}

/* --- a hak_heap's slow paths --- */

static void *of_handler;

static void on_step_resize(int number) {
  if (!thread_is_busy())
    return;
  of_handler = hak_realloc(of_handler, acts++ % 2 ? 40 : 3000);
  CHECK(of_handler != NULL && thread_is_busy());
}

static void heap_churn(hak_heap *heap) {
  for (unsigned i = 0; i < 8; i++) {
    step_begin();
    live[i] = heap != NULL ? hak_heap_malloc(heap, 100 + i * 700) : hak_malloc(100 + i * 700);
    step_end();
  }
  for (unsigned i = 0; i < 8; i++)
    hak_free(live[i]);
}

/* The handler's block belongs to no hak_heap, while the thread works for one or has it as its default. */
UNIT_TEST_IN_CHILD(a_handler_may_resize_while_a_hak_heap_is_used) {
  hak_heap *heap = hak_heap_new(0);
  of_handler = hak_malloc(40);
  signal(SIGTRAP, on_step_resize);
  is_armed = true;
  heap_churn(heap);
  hak_heap_set_default(heap, NULL);
  heap_churn(NULL);
  is_armed = false;
  hak_heap_set_default(NULL, NULL);
  hak_heap_destroy(heap);
  memset(of_handler, 1, 40);
  hak_free(of_handler);
  CHECK(acts >= 1000);
}

/* --- what ends beside a foreign address --- */

#define RANGE_BYTES UNIT_BYTES
static struct large *mapping;
static bool is_unmapped;

static void extents_give_back(void) { extents_purge(purge_by_preset(0, UINT64_MAX)); }

/* Its record is a free extent's then, and so it stays when the addresses go. */
static void end_mapping(void) {
  CHECK(range_become_extent(mapping));
  range_leaves(mapping);
  range_end(mapping, os_milliseconds(), USAGE_LARGE);
  if (is_unmapped)
    extents_give_back();
}

/* The steps after it are not asked about, and the search goes far back then: it ends without them. */
static void on_step_of_search(int number, siginfo_t *information, void *context) {
  if (++steps != act_at)
    return;
  ((ucontext_t *)context)->uc_mcontext.gregs[REG_EFL] &= ~0x100;
  end_mapping();
}

/* Returns false if the search was over before. */
static bool ends_at_step(long step) {
  char *base = os_map(RANGE_BYTES + UNIT_BYTES, UNIT_BYTES), *foreign = base + RANGE_BYTES;
  CHECK(base != NULL && map_cover(base, RANGE_BYTES + UNIT_BYTES));
  mapping = range_made(base, RANGE_BYTES, true, USAGE_NOWHERE);
  range_entries_set(mapping, step % 2 ? ENTRY_LARGE : ENTRY_LARGE_FREE);
  act_at = step;
  steps = 0;
  step_begin();
  uint32_t entry = range_entry_inside(foreign);
  step_end();
  CHECK_SAY(entry == ENTRY_NONE, "the foreign address is taken for %u at step %ld", entry, act_at);
  bool is_within = steps >= act_at;
  if (!is_within)
    end_mapping();
  extents_give_back();
  os_unmap(foreign, UNIT_BYTES);
  return is_within;
}

UNIT_TEST_IN_CHILD(what_ends_beside_a_foreign_address_is_not_taken_for_it) {
  hak_free(hak_malloc((size_t)33 << 20)); /* the search goes back so far */
  sigaction(SIGTRAP, &(struct sigaction){.sa_sigaction = on_step_of_search, .sa_flags = SA_SIGINFO}, NULL);
  is_armed = true;
  for (unsigned i = 0; i < 2; i++) {
    is_unmapped = i == 1;
    for (long step = 1; ends_at_step(step);)
      step++;
    CHECK(act_at >= 40);
  }
}

/* --- an envelope that is drained while it is sent --- */

static struct pool *receiver;

static void on_step_of_sender(int number) {
  if (inbox_has_mail(receiver) && lock_try(&receiver->lock)) {
    inbox_drain_to_slabs(receiver);
    lock_give(&receiver->lock);
    acts++;
  }
  CHECK(load_relaxed(&receiver->inbox_bytes) <= LIVE * 100 && load_relaxed(&receiver->inbox_envelopes) <= LIVE);
}

/* Another thread may take it between any two instructions: the figures never fall below 0. */
UNIT_TEST_IN_CHILD(an_envelope_may_be_drained_while_it_is_sent) {
  struct heap *own = unit_heap_attach(), *other = unit_heap_attach();
  for (unsigned i = 0; i < LIVE; i++)
    put(i, 96);
  receiver = heap_pool(other);
  unit_heap_become(own);
  signal(SIGTRAP, on_step_of_sender);
  is_armed = true;
  for (unsigned i = 0; i < LIVE; i++)
    take(i);
  step_begin();
  hak_trim(0);
  step_end();
  CHECK(acts >= 2);
}

/* Another thread may make the first leaf of the page map meanwhile. */
static void on_step_of_free(int number) {
  if (++steps == act_at)
    of_handler = hak_malloc(100);
}

static void scenario_first_leaf(void *step) {
  signal(SIGTRAP, on_step_of_free);
  void *foreign = mmap(NULL, UNIT_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  act_at = (long)step;
  is_armed = true;
  step_begin();
  hak_free(foreign);
  step_end();
  CHECK(of_handler != NULL && map_entry(of_handler) != ENTRY_NONE);
}

static void on_step_counted(int number) { steps++; }

/* However long the longest mapping was, and whatever lies in front of the address. */
UNIT_TEST_IN_CHILD(the_search_for_a_mapping_is_short) {
  char *in_arena = hak_malloc((size_t)1 << 20), *longest = hak_malloc((size_t)1 << 30);
  CHECK(in_arena != NULL && longest != NULL);
  hak_free(longest);
  const char *foreign[] = {in_arena + ((size_t)50 << 20), in_arena + ((size_t)800 << 20)};
  signal(SIGTRAP, on_step_counted);
  is_armed = true;
  for (unsigned i = 0; i < sizeof foreign / sizeof foreign[0]; i++) {
    steps = 0;
    step_begin();
    uint32_t entry = range_entry_inside(foreign[i]);
    step_end();
    CHECK_SAY(entry == ENTRY_NONE && steps <= 1000, "it takes %ld instructions and finds %u", steps, entry);
  }
}

/* --- threads that end in a handler --- */

#define SENT 4u /* to an envelope that stays open: the first one opens it */
static unsigned char *sent[SENT];
static bool has_ended;

static void on_step_of_owner(int number) {
  struct heap *heap = heap_current();
  if (heap == NULL || load_relaxed(&heap->inside) != 0 || !thread_is_busy() || ++steps != act_at)
    return;
  has_ended = true;
  pthread_exit(NULL);
}

static void *send_some(void *unused) {
  hak_free(sent[0]);
  step_begin();
  for (unsigned i = 1; i < SENT; i++)
    hak_free(sent[i]);
  step_end();
  return NULL;
}

/* Of a thread that ends outside slow paths its heap serves others, whichever instruction was its last. */
UNIT_TEST_IN_CHILD(a_thread_may_end_at_each_instruction) {
  unit_option("HAKMEM_POOLS", "2");
  signal(SIGTRAP, on_step_of_owner);
  do {
    for (unsigned i = 0; i < SENT; i++)
      sent[i] = hak_malloc(i % 2 ? 100 : 2000);
    act_at++;
    steps = 0;
    has_ended = false;
    is_armed = true;
    test_thread_run(send_some, NULL);
    is_armed = false;
    hak_trim(0); /* sweeps it */
    for (unsigned i = 0; i < LIVE; i++)
      put(i, i % 2 ? 100 : 2000);
    for (unsigned i = 0; i < LIVE; i++)
      take(i);
    for (uint32_t id = 1; id <= heap_count(); id++)
      CHECK(load_relaxed(&heap_by_id(id)->outbox.open_bytes) == 0);
  } while (has_ended);
  CHECK(heap_count() == 2 && act_at >= 30);
}

/* One call at a time is made in steps: those that find no drawn block or no room, and a few usual ones. */
#define CHECKED 96u
#define CALLS_APART 64u
static unsigned char *checked_blocks[CHECKED];
static unsigned call, stepped_call;

static bool is_unusual(bool is_free) {
  struct checked_cache *cache = cache_if_idle();
  const struct checked_class *class = cache ? class_in(cache, checked_class(100, 1)) : NULL;
  return class != NULL && (is_free ? !has_room(class) : class->next.block == NULL);
}

static void call_begin(bool is_free) {
  if (call++ == stepped_call && (is_unusual(is_free) || stepped_call % CALLS_APART == 1))
    step_begin();
}

static void *churn_checked(void *unused) {
  for (unsigned i = 0; i < CHECKED; i++) {
    if (checked_blocks[i] != NULL)
      continue;
    call_begin(false);
    checked_blocks[i] = hak_malloc(100);
    step_end();
    memset(checked_blocks[i], (int)i, 100);
  }
  for (unsigned i = 0; i < CHECKED; i++) {
    unsigned char *block = checked_blocks[i];
    CHECK_SAY(block[0] == i && block[99] == i, "after an end in step %ld of call %u", act_at, stepped_call);
    checked_blocks[i] = NULL;
    call_begin(true);
    hak_free(block);
    step_end();
  }
  return NULL;
}

/* Returns false if the call was over before, or was not made in steps. */
static bool ends_in_call(bool is_emptied, bool is_swept) {
  if (is_emptied)
    hak_trim(0);
  steps = 0;
  call = 0;
  has_ended = false;
  is_armed = true;
  test_thread_run(churn_checked, NULL);
  is_armed = false;
  if (!has_ended)
    return false;
  acts++;
  if (is_swept)
    hak_trim(0);
  test_thread_run(churn_checked, NULL);
  churn_checked(NULL);
  return true;
}

/* The same of a cache of checked blocks, which is empty before or not. The next thread takes it over, or it is swept. All
 * four ways, and each instruction, in long runs; else two ways, and one in APART. */
UNIT_TEST_IN_CHILD(a_thread_may_end_while_blocks_are_checked) {
  check_blocks();
  signal(SIGTRAP, on_step_of_owner);
  churn_checked(NULL);
  bool is_long = getenv("UNIT_LONG") != NULL;
  for (unsigned way = is_long ? 0 : 1; way < (is_long ? 4 : 3); way++)
    for (stepped_call = 1; stepped_call < 2 * CHECKED; stepped_call++)
      for (act_at = 1; ends_in_call(way & 1, way & 2);)
        act_at += is_long ? 1 : APART;
  CHECK(heap_count() == 2 && acts >= 500 / APART);
}
UNIT_TEST(a_foreign_address_may_be_freed_while_the_first_leaf_is_made) {
  for (long step = 1; step <= 30; step++)
    unit_passes_in_child(scenario_first_leaf, (void *)step);
}
static void begin(void) {
  unit_alone();
  if (*unit_word)
    unit_test_count = 1; /* the control concerns the first one only */
}

UNIT_MAIN(begin())
#else
int main(void) {
  puts("the processor's trap after each instruction is used on x86-64, without sanitizers");
  return 77;
}
#endif
