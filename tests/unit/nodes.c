/* nodes: NUMA nodes are counted from made-up /sys trees. Then two processors are two nodes, whatever the machine has,
 * and threads that run on either get pools and memory of theirs. Some run on real processors, others on one that
 * sched_getcpu makes up. Controls: `blind`: every thread seems to run on processor 0; `uncounted`: the second node is
 * never counted. The tests must fail then.
 */
#include "unit.h"

#include "os/nodes.h"
#include "tree.h"

#include <sched.h>

#define LOOKS_FIRST 8u /* of heap_follow_node, before its first move */

static __thread int pretended_cpu = -1;

TEST_WRAP(int, sched_getcpu, void) {
  return unit_lies("blind") ? 0 : pretended_cpu >= 0 ? pretended_cpu : __real_sched_getcpu();
}

static struct {
  bool interrupt, by_byte; /* each call fails once with EINTR; reads get a byte at a time */
  bool interrupted;
  _Atomic unsigned opened; /* two threads of a test open files */
  int allowed_cpu;         /* the only one that the calling thread may use */
  unsigned asked;          /* how often */
} world;

TEST_WRAP(long, os_kernel, long number, long a, long b, long c, long d, long e, long f) {
  bool is_file = number == SYS_openat || number == SYS_read;
  if (is_file && world.interrupt) {
    world.interrupted = !world.interrupted;
    if (world.interrupted) {
      errno = EINTR;
      return -1;
    }
  }
  world.opened += number == SYS_openat;
  if (number == SYS_read && world.by_byte && c > 1)
    c = 1;
  if (number == SYS_sched_getaffinity) {
    world.asked++;
    memset((void *)(uintptr_t)c, 0, (size_t)b);
    ((unsigned char *)(uintptr_t)c)[world.allowed_cpu / 8] = (unsigned char)(1 << world.allowed_cpu % 8);
    return b;
  }
  return __real_os_kernel(number, a, b, c, d, e, f);
}

#define STAT(cpu)                                                                                                      \
  "7 (a) b (x) S 1 7 7 0 -1 4194304 99 0 0 0 0 0 0 0 20 0 1 0 88 2600000 200 18446744073709551615 1 1 0 0 0 0 0 0 0 "  \
  "0 0 0 17 " cpu " 0 0 0 0 0 0 0 0 0 0 0 0 0\n"

static void tree_of_two(void) {
  tree_made();
  put("/sys/devices/system/node/has_cpu", "0-1\n");
  put("/sys/devices/system/node/node0/cpulist", "0\n");
  put("/sys/devices/system/node/node1/cpulist", "1\n");
  put("/proc/self/stat", STAT("0"));
}

static int forget_tree(void **state) {
  tree_end();
  return 0;
}

#define NODES_MADE 12
struct row {
  const char *has_cpu;
  const char *cpus[NODES_MADE]; /* of node 0, 1, ...; NULL: there is no such file */
  const char *stat;
  unsigned nodes;
  int of_cpu[4]; /* the nodes of processors 0 to 3 */
};

static void row_check(void *argument) {
  const struct row *row = argument;
  atomic_store(&os_nodes_counted, 0);
  errno = 4711;
  os_nodes_count();
  unsigned opened = world.opened;
  os_nodes_count();
  CHECK(errno == 4711 && world.opened == opened);
  CHECK_SAY(os_nodes() == row->nodes && (row->nodes > 1 || os_node() == 0), "%u nodes", os_nodes());
  for (int cpu = 0; cpu < 4 && row->nodes > 1; cpu++) {
    pretended_cpu = world.allowed_cpu = cpu;
    CHECK(os_cpus_add() == (unsigned)cpu + 1);
    for (int node = 0; node < (int)row->nodes; node++) {
      unsigned cpus = 0;
      for (int other = 0; other <= cpu; other++)
        cpus += row->of_cpu[other] == node;
      CHECK_SAY(os_cpus_of_node((unsigned)node) == cpus, "processor %d", cpu);
    }
    CHECK_SAY((int)os_node() == row->of_cpu[cpu], "processor %d", cpu);
  }
}

UNIT_TEST_BETWEEN(nodes_are_counted, NULL, forget_tree) {
  static const struct row rows[] = {
      {"0-1\n", {"0-1\n", "2-3\n"}, STAT("0"), 2, {0, 0, 1, 1}},
      {"0-1\n", {"0-1\n", "2-3\n"}, STAT("3"), 2, {1, 1, 0, 0}}, /* the main thread's node is the first */
      {"0-1", {"0,2", "1,3"}, STAT("2"), 2, {0, 1, 0, 1}},
      {"0-1\n", {"0,2-3\n", "1\n"}, NULL, 2, {0, 1, 0, 0}},
      {"0-1\n", {"0,2-3\n", "1\n"}, "7 (x", 2, {0, 1, 0, 0}},
      {"0-1\n", {"0,2-3\n", "1\n"}, STAT("99999"), 2, {0, 1, 0, 0}},
      {"0,2\n", {"0-1\n", NULL, "2-3\n"}, STAT("0"), 2, {0, 0, 1, 1}}, /* one is offline, or has memory only */
      {"0-3\n", {"3\n", "2\n", "1\n", "0\n"}, STAT("3"), 4, {3, 2, 1, 0}},
      {"0-8\n", {"0\n", "1\n", "2\n", "3\n", "4\n", "5\n", "6\n", "7\n", "8\n"}, STAT("0"), 8, {0, 1, 2, 3}},
      {"0-1\n", {"0-3,99999999999999999999\n", "4\n"}, STAT("4"), 2, {1, 1, 1, 1}},
      {"0\n", {"0-3\n"}, STAT("0"), 1, {0}},
      {"3\n", {NULL, NULL, NULL, "0-3\n"}, STAT("0"), 1, {0}},
      {NULL, {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-3\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-3\n", ""}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-3\n", "\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-1\n", "3-2\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-1\n", "2-\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-1\n", "2,\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"0-1\n", "2 3\n"}, STAT("0"), 1, {0}},
      {"0-1\n", {"x\n", "2\n"}, STAT("0"), 1, {0}},
      {"1-0\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"0-1x\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"0-1,\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"-1\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"0,1024\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
      {"0-18446744073709551616\n", {"0-1\n", "2-3\n"}, STAT("0"), 1, {0}},
  };
  for (unsigned i = 0; i < 3 * sizeof rows / sizeof rows[0]; i++) {
    struct row row = rows[i / 3];
    tree_made();
    world.interrupt = i % 3 == 1;
    world.by_byte = i % 3 == 2;
    if (row.has_cpu)
      put("/sys/devices/system/node/has_cpu", row.has_cpu);
    for (unsigned node = 0; node < NODES_MADE; node++) {
      char name[64];
      snprintf(name, sizeof name, "/sys/devices/system/node/node%u/cpulist", node);
      if (row.cpus[node])
        put(name, row.cpus[node]);
    }
    if (row.stat)
      put("/proc/self/stat", row.stat);
    char said[512];
    if (unit_in_child(row_check, &row, said, sizeof said) != 0)
      fail_msg("row %u, way %u: %s", i / 3, i % 3, said);
  }
  world.interrupt = world.by_byte = false;
}

/* Threads come that may use a second processor, later a third one; they attach one after the other. After many threads
 * in a row that brought no new processor, most are not asked for theirs. Whoever doubles the threads is: a new
 * processor makes room for a pool more until there are twice as many threads. */
UNIT_TEST_IN_CHILD(processors_that_come_late_are_found) {
  enum { SECOND = 13, THIRD = 30, THREADS = 64 };
  unit_option("HAKMEM_POOLS", "0");
  for (unsigned i = 1; i <= THREADS; i++) {
    world.allowed_cpu = i < SECOND ? 0 : i < THIRD ? 1 : 2;
    unit_heap_attach();
    CHECK(i >= SECOND || pool_count() == 1);
    CHECK(i != 2 * SECOND || pool_count() == 2);
  }
  CHECK(pool_count() == 3);
  CHECK(world.asked <= THREADS * 2 / 3);
}

/* From here on there are two nodes. */
UNIT_TEST_BETWEEN(two_nodes, NULL, forget_tree) {
  tree_of_two();
  atomic_store(&os_nodes_counted, unit_lies("uncounted") ? 1 : 0);
  os_nodes_count();
  assert_int_equal(os_nodes(), 2);
}

static struct heap *heap_on(int cpu) {
  pretended_cpu = cpu;
  return unit_heap_attach();
}

static unsigned node_of_heap(const struct heap *heap) { return heap_pool(heap)->node; }

UNIT_TEST(a_thread_gets_a_pool_of_its_node) {
  unit_option("HAKMEM_POOLS", "4");
  struct heap *heaps[8];
  for (unsigned i = 0; i < 8; i++) {
    heaps[i] = heap_on(i % 2 != 0);
    assert_int_equal(node_of_heap(heaps[i]), i % 2);
  }
  for (unsigned i = 0; i < 8; i++) /* two pools a node */
    assert_int_equal(pool_heaps(heap_pool(heaps[i])), 2);
  for (unsigned i = 1; i < 8; i++) /* bins keep no blocks of other nodes */
    assert_int_equal(entries_are_alike(heap_pool(heaps[i])->slabs.key, heap_pool(heaps[0])->slabs.key), i % 2 == 0);
  unit_pools_clear();
  unit_option("HAKMEM_POOLS", "1"); /* fewer than nodes */
  assert_ptr_equal(heap_pool(heap_on(0)), heap_pool(heap_on(1)));
  unit_pools_clear();
}

/* Threads may be bound to processors of their own: each that comes makes room for a pool more. */
UNIT_TEST(pools_are_shared_out_by_processors) {
  unit_option("HAKMEM_POOLS", "0");
  unsigned heaps[2] = {0}, used[2] = {0};
  for (unsigned i = 0; i < 12; i++) {
    world.allowed_cpu = i < 6 ? 0 : 2; /* of node 0; both of them */
    heaps[0] += node_of_heap(heap_on(0)) == 0;
    if (i % 3 == 0)
      heaps[1] += node_of_heap(heap_on(1)) == 1; /* a node whose processors no thread may use has one pool */
  }
  world.allowed_cpu = 0;
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool))
    used[pool->node] += pool_heaps(pool) > 0;
  assert_int_equal(heaps[0], 12);
  assert_int_equal(heaps[1], 4);
  assert_int_equal(used[0], 2);
  assert_int_equal(used[1], 1);
  unit_pools_clear();
}

static char *unit_on(int cpu) {
  pretended_cpu = cpu;
  char *unit = UNIT_GOT(run_take(0, false));
  usage_move_end(UNIT_BYTES);
  *unit = 1;
  return unit;
}

static void unit_give(char *unit) {
  usage_move_begin(UNIT_BYTES);
  run_give(unit, 0, KEEP_BY_PRESET);
}

UNIT_TEST(units_come_from_the_nodes_own_memory) {
  unit_pools_clear();
  char *units[2][20];
  for (unsigned i = 0; i < 40; i++) {
    units[i % 2][i / 2] = unit_on(i % 2 != 0);
    assert_int_equal(extent_node_of(units[i % 2][i / 2]), i % 2);
  }
  UNIT_EXTENTS_VALID();
  /* Each node's resident units serve it first; then the other's, before fresh memory. */
  for (unsigned node = 0; node < 2; node++)
    for (unsigned i = 0; i < 5; i++)
      unit_give(units[node][3 * i]);
  size_t resident = decay_total(&extents_decay);
  for (unsigned i = 0; i < 5; i++) {
    units[1][3 * i] = unit_on(1);
    assert_int_equal(extent_node_of(units[1][3 * i]), 1);
  }
  for (unsigned i = 0; i < 5; i++) {
    units[0][3 * i] = unit_on(1);
    assert_int_equal(extent_node_of(units[0][3 * i]), 0);
  }
  assert_int_equal(decay_total(&extents_decay), resident - 10 * UNIT_BYTES);
  char *fresh = unit_on(1);
  assert_int_equal(extent_node_of(fresh), 1);
  unit_give(fresh);
  UNIT_EXTENTS_VALID();
  for (unsigned i = 0; i < 40; i++)
    unit_give(units[i % 2][i / 2]);
  UNIT_EXTENTS_VALID();
}

/* Extents are not joined across nodes, and serve their node first. */
UNIT_TEST(extents_serve_their_node_first) {
  enum { COUNT = 6 };
  char *objects[2][COUNT];
  for (unsigned i = 0; i < 2 * COUNT; i++) {
    pretended_cpu = (int)(i % 2);
    objects[i % 2][i / 2] = UNIT_GOT(hak_malloc(3 * MIB + i * MIB / 4));
    assert_int_equal(extent_node_of(objects[i % 2][i / 2]), i % 2);
    *objects[i % 2][i / 2] = 1;
  }
  for (unsigned i = 0; i < 2 * COUNT; i++)
    hak_free(objects[i % 2][i / 2]);
  UNIT_EXTENTS_VALID();
  for (int cpu = 0; cpu < 2; cpu++) {
    pretended_cpu = cpu;
    void *again = hak_malloc(5 * MIB), *more = hak_malloc(MIB);
    assert_int_equal(extent_node_of(again), cpu);
    assert_int_equal(extent_node_of(more), cpu);
    hak_free(again);
    hak_free(more);
  }
  pretended_cpu = 1; /* node 0's resident memory comes before fresh memory */
  size_t held = usage_held();
  void *all[3 * COUNT];
  unsigned of_first_node = 0;
  for (unsigned i = 0; i < 3 * COUNT; i++) {
    all[i] = UNIT_GOT(hak_malloc(2 * MIB));
    of_first_node += extent_node_of(all[i]) == 0;
  }
  assert_in_range(of_first_node, 3, 3 * COUNT - 3);
  assert_int_equal(usage_held(), held);
  unit_free(all, 3 * COUNT);
  UNIT_EXTENTS_VALID();
  unit_pools_clear();
}

static void look(struct heap *heap) { UNIT_SLOWLY(heap_follow_node(heap)); }

UNIT_TEST(a_heap_follows_its_thread) {
  enum { BLOCKS = 500, BYTES = 64 };
  static char *blocks[BLOCKS];
  unit_option("HAKMEM_POOLS", "4");
  struct heap *heap = heap_on(0);
  for (unsigned i = 0; i < BLOCKS; i++)
    *(blocks[i] = hak_malloc(BYTES)) = (char)i;
  unit_free(blocks, BLOCKS / 2);
  /* One that goes to and fro stays. */
  for (unsigned i = 0; i < 10 * LOOKS_FIRST; i++) {
    pretended_cpu = i % LOOKS_FIRST != 0;
    look(heap);
    assert_int_equal(node_of_heap(heap), 0);
  }
  struct pool *left = heap_pool(heap);
  unsigned looks_needed[7];
  for (unsigned move = 0; move < 7; move++) {
    unsigned node = move % 2 == 0;
    pretended_cpu = (int)node;
    for (looks_needed[move] = 0; node_of_heap(heap) != node && looks_needed[move] < 1000; looks_needed[move]++)
      look(heap);
    UNIT_HEAP_VALID(heap);
    char *block = hak_malloc(BYTES);
    assert_int_equal(extent_node_of(block), node);
    assert_int_equal(pool_heaps(heap_pool(heap)), 1);
    hak_free(block);
  }
  assert_in_range(looks_needed[0], 1, LOOKS_FIRST);
  assert_int_equal(looks_needed[1], 2 * LOOKS_FIRST); /* each move makes the next one later, to a bound */
  assert_int_equal(looks_needed[6], looks_needed[5]);
  assert_int_equal(pool_heaps(left), 0);
  for (unsigned i = BLOCKS / 2; i < BLOCKS; i++) {
    assert_int_equal(*blocks[i], (char)i);
    hak_free(blocks[i]);
  }
  assert_true(load_relaxed(&heap->outbox.remote_frees) > 0); /* of the pool that it left */
  unit_pools_clear();
}

/* Without a look of the test's own: some thousand slow calls. */
UNIT_TEST(slow_paths_look) {
  enum { BLOCKS = 12000, ROUNDS = 200 };
  static void *blocks[BLOCKS];
  struct heap *heap = heap_on(0);
  pretended_cpu = 1;
  for (unsigned round = 0; round < ROUNDS && node_of_heap(heap) == 0; round++) {
    unit_alloc(blocks, BLOCKS, 512);
    unit_free(blocks, BLOCKS);
  }
  assert_int_equal(node_of_heap(heap), 1);
  unit_pools_clear();
}

struct runner {
  pthread_barrier_t *both;
  int cpus[2];
  unsigned nodes_seen[2], first, second;
};

static bool run_on(int cpu) {
  cpu_set_t set;
  CPU_ZERO(&set);
  CPU_SET(cpu, &set);
  return sched_setaffinity(0, sizeof set, &set) == 0;
}

static void give_all_back(void) { UNIT_SLOWLY(reclaim_all()); }

static void *run_on_both(void *argument) {
  struct runner *runner = argument;
  for (unsigned i = 0; i < 2; i++) {
    assert_true(run_on(runner->cpus[i]));
    if (i == 0)
      hak_free(hak_malloc(100));
    struct heap *heap = heap_current();
    for (unsigned looks = 0; looks <= LOOKS_FIRST; looks++)
      look(heap);
    runner->nodes_seen[i] = node_of_heap(heap);
    /* Resident memory of any node comes before fresh memory, so none may be free. */
    pthread_barrier_wait(runner->both);
    give_all_back();
    pthread_barrier_wait(runner->both);
    char *block = hak_malloc(40000);
    *(i == 0 ? &runner->first : &runner->second) = extent_node_of(block);
    pthread_barrier_wait(runner->both);
    hak_free(block);
  }
  return argument;
}

/* On real processors. */
UNIT_TEST(threads_on_two_processors) {
  unit_needs_ends();
  cpu_set_t before;
  assert_int_equal(sched_getaffinity(0, sizeof before, &before), 0);
  unit_skip_if(!CPU_ISSET(0, &before) || !CPU_ISSET(1, &before), "processors 0 and 1 may not be used");
  pthread_barrier_t both;
  struct runner runners[2] = {{.both = &both, .cpus = {0, 1}}, {.both = &both, .cpus = {1, 0}}};
  assert_int_equal(pthread_barrier_init(&both, NULL, 2), 0);
  unit_option("HAKMEM_POOLS", "4");
  test_threads_run(2, run_on_both, runners, sizeof *runners);
  pthread_barrier_destroy(&both);
  for (unsigned i = 0; i < 2; i++)
    for (unsigned k = 0; k < 2; k++)
      assert_int_equal(runners[i].nodes_seen[k], runners[i].cpus[k]);
  for (unsigned i = 0; i < 2; i++) {
    assert_int_equal(runners[i].first, runners[i].cpus[0]);
    assert_int_equal(runners[i].second, runners[i].cpus[1]);
  }
  heap_on(0);
  unit_sweep();
  unit_pools_clear();
}

static void *end_on(void *cpu) {
  pretended_cpu = (int)(intptr_t)cpu;
  hak_free(hak_malloc(100));
  return heap_current();
}

UNIT_TEST(a_thread_adopts_a_heap_of_its_node) {
  unit_needs_ends();
  const void *ended = test_thread_run(end_on, (void *)1);
  assert_ptr_not_equal(heap_on(0), ended);
  assert_ptr_equal(heap_on(1), ended);
  unit_pools_clear();
}

static void child_check(void *unused) {
  CHECK(os_nodes() == 2);
  pretended_cpu = 1;
  CHECK(node_of_heap(unit_heap_attach()) == 1);
  pretended_cpu = 0;
  CHECK(node_of_heap(unit_heap_attach()) == 0);
  give_all_back(); /* node 1's resident memory would come before fresh memory */
  CHECK(extent_node_of(hak_malloc(300000)) == 0);
}

UNIT_TEST(a_forks_child_knows_the_nodes) {
  heap_on(0);
  unit_passes_in_child(child_check, NULL);
  unit_pools_clear();
}

/* A range that is kept serves its node first, the newest of them, and then the other node. Nothing touches the memory
 * of these ranges, and their moves do not end. */
UNIT_TEST(cached_ranges_serve_their_node_first) {
  enum { COUNT = 6 };
  char *place = os_reserve(LEAF_BYTES, LEAF_BYTES);
  assert_true(place != NULL && map_cover(place, LEAF_BYTES));
  struct large *ranges[COUNT];
  for (unsigned i = 0; i < COUNT; i++, place += MIB) {
    arena_mark_set(place, MIB, 1 + EXTENT_BANKS * (i % 2));
    ranges[i] = map_record(place);
    *ranges[i] = (struct large){.base = place, .units = MIB / UNIT_BYTES};
    map_entries_set(place, 1, ENTRY_LARGE_FREE);
    usage_move_begin(MIB);
    usage_move(USAGE_NOWHERE, USAGE_LARGE, MIB);
    big_cache_put(ranges[i], KEEP_BY_PRESET, os_milliseconds());
  }
  static const unsigned taken[] = {4, 2, 0, 5, 3, 1};
  pretended_cpu = 0;
  for (unsigned i = 0; i < COUNT; i++)
    assert_ptr_equal(big_cache_take(MIB, UNIT_BYTES, 0), ranges[taken[i]]);
}

/* What a node gets depends on what is resident, and that on the clock: a test may have to wait for a processor. */
UNIT_MAIN({
  unit_alone();
  unit_option("HAKMEM_PURGE_DELAY_MS", "3600000");
})
