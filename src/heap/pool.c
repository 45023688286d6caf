#include "heap/pool.h"

#include "base/doubling.h"
#include "base/options.h"
#include "heap/heap.h"
#include "os/cgroup.h"
#include "os/fault.h"
#include "os/filter.h"
#include "pages/metadata.h"

#define CPUS_UNKNOWN 4u /* where the system may not be asked */
#define ASKS_MAX 8u /* threads in a row without a new processor; then the next is asked once the heaps have doubled */
_Static_assert(PRIVATE_FIRST + PRIVATE_MAX < UINT32_MAX >> HAK_ENTRY_ID_SHIFT, "an entry has room for each id");

static struct {
  struct lock lock;                /* guards new pools, and the choice between pools */
  uint32_t max_by_cpus[NODES_MAX]; /* pools of a node; 0: not asked yet */
  unsigned cpus;                   /* that the threads so far may use */
  unsigned asked_in_vain;          /* threads in a row */
  size_t heaps_asked;              /* heaps when a thread was asked last */
  size_t cpu_limit;                /* of the process's control groups */
  uint32_t for_heaps;              /* pools that are not shared */
  uint32_t generation;             /* pools_generation */
  _Atomic uint32_t count, private_count;
  struct pool *unused; /* private ones that were given back */
} table;

#define FIRST_POOLS 8u
#define CHUNKS_MAX 12u
_Static_assert(PRIVATE_FIRST + PRIVATE_MAX <= (FIRST_POOLS << CHUNKS_MAX) - FIRST_POOLS, "each id has a place");

typedef _Atomic(struct pool *) pool_place;
static _Atomic(pool_place *) chunks[CHUNKS_MAX]; /* pools by id (base/doubling.h) */

/* `bytes` is not 0, so that it lies in .data, where a fork writes anyway. */
static struct {
  _Atomic uint32_t pools; /* the first ones */
  size_t bytes;           /* that they had given out at the fork */
} inherited = {.bytes = SIZE_MAX};

_Atomic uint32_t pool_shared_id;
static _Atomic size_t heaps_attached; /* the sum of all pools' heaps */

static void heap_attached(struct pool *pool) {
  atomic_fetch_add_explicit(&pool->heaps, 1, memory_order_seq_cst);
  atomic_fetch_add_explicit(&heaps_attached, 1, memory_order_relaxed);
}

uint32_t pool_count(void) { return atomic_load_explicit(&table.count, memory_order_acquire); }

/* The chunk exists. */
static pool_place *place_of(uint32_t id) {
  struct doubling_place place = doubling_place(id, FIRST_POOLS);
  return atomic_load_explicit(&chunks[place.chunk], memory_order_acquire) + place.index;
}

static bool place_make(uint32_t id) {
  unsigned chunk = doubling_place(id, FIRST_POOLS).chunk;
  if (load_relaxed(&chunks[chunk]) != NULL)
    return true;
  pool_place *fresh = metadata_take_forever(sizeof *fresh * FIRST_POOLS << chunk);
  atomic_store_explicit(&chunks[chunk], fresh, memory_order_release);
  return fresh != NULL;
}

static bool id_is_used(uint32_t id) {
  return id < PRIVATE_FIRST ? id - 1 < pool_count()
                            : id - PRIVATE_FIRST < atomic_load_explicit(&table.private_count, memory_order_acquire);
}

static struct pool *pool_at(uint32_t id) { return id_is_used(id) ? load_relaxed(place_of(id)) : NULL; }

struct pool *pool_by_id(uint32_t id) {
  hak_assert(pool_at(id) != NULL);
  return load_relaxed(place_of(id));
}

struct pool *pool_private_by_id(uint32_t id) { return id >= PRIVATE_FIRST ? pool_at(id) : NULL; }

struct pool *pool_next(const struct pool *pool) {
  uint32_t id = pool ? pool->id + 1 : 1;
  struct pool *next = pool_at(id);
  return next != NULL || id > PRIVATE_FIRST ? next : pool_at(PRIVATE_FIRST);
}

/* Threads of different nodes do not keep each other's blocks. Nor does the child of a fork keep those that it inherited
 * (threads/inherited.h). Where kinds run out, some of them do. */
static unsigned kind_of_node(unsigned node) {
  return KIND_ORDINARY + (table.generation * os_nodes() + node) % KINDS_ORDINARY;
}

/* NULL when memory is out, or there are too many of its kind. The table's lock is held. */
static struct pool *pool_make(unsigned kind, unsigned node) {
  bool is_private = kind == KIND_PRIVATE, is_shared = kind == KIND_SHARED;
  uint32_t count = pool_count(), id = is_private ? PRIVATE_FIRST + table.private_count : count + 1;
  bool has_place = is_private  ? table.private_count < PRIVATE_MAX
                   : is_shared ? count - table.for_heaps < SHARED_MAX
                               : table.for_heaps < POOLS_MAX;
  struct pool *pool = has_place && place_make(id) ? metadata_take_forever(sizeof *pool) : NULL;
  if (pool == NULL)
    return NULL;
  pool->id = id;
  pool->slabs.key = entry_key(id, kind == KIND_ORDINARY ? kind_of_node(node) : kind);
  pool->slabs.lists_full = is_private;
  pool->is_shared = is_shared;
  pool->node = (uint8_t)node;
  store_relaxed(&pool->life, is_private);
  table.for_heaps += kind == KIND_ORDINARY;
  store_relaxed(place_of(id), pool);
  atomic_store_explicit(&table.count, count + !is_private, memory_order_release);
  atomic_store_explicit(&table.private_count, table.private_count + is_private, memory_order_release);
  return pool;
}

struct pool *pool_take_private(void) {
  HOLD_LOCK(&table.lock);
  struct pool *pool = table.unused;
  if (pool == NULL)
    return pool_make(KIND_PRIVATE, 0);
  table.unused = pool->next_unused;
  return pool;
}

void pool_give_private(struct pool *pool) {
  HOLD_LOCK(&table.lock);
  pool->next_unused = table.unused;
  table.unused = pool;
}

struct pool *pool_make_shared(void) {
  HOLD_LOCK(&table.lock);
  return pool_make(KIND_SHARED, 0);
}

/* Counts nodes and processors when the second thread comes, so a program with one thread makes no system call. Threads
 * may be bound to processors of their own, so a later thread that would share a pool adds those that it may use. */
COLD static void processors_count(void) {
  bool is_first = table.max_by_cpus[0] == 0;
  unsigned cpus = os_cpus_add();
  table.heaps_asked = pools_heaps();
  if (!is_first && cpus == table.cpus) {
    table.asked_in_vain++;
    return;
  }
  if (is_first) {
    os_nodes_count();
    bool has_limit = option_value(OPTION_CGROUP) == CGROUP_ON && os_may_read_files();
    table.cpu_limit = has_limit ? os_cpu_limit_read() : SIZE_MAX;
  }
  table.cpus = cpus;
  table.asked_in_vain = 0;
  size_t usable = min_size(cpus ? cpus : CPUS_UNKNOWN, table.cpu_limit);
  for (unsigned node = 0; node < os_nodes(); node++) {
    size_t share = cpus > 0 && os_has_nodes() ? (usable * os_cpus_of_node(node) + cpus - 1) / cpus : usable;
    table.max_by_cpus[node] = (uint32_t)min_size(max_size(share, 1), POOLS_MAX);
  }
}

/* Returns the node whose pools serve the calling thread. */
static unsigned node_served(void) {
  long wanted = option_value(OPTION_POOLS);
  return os_has_nodes() && (wanted == 0 || wanted >= os_nodes()) ? os_node() : 0;
}

static uint32_t pools_max(unsigned node) {
  long wanted = option_value(OPTION_POOLS);
  if (wanted != 0)
    return (uint32_t)max_size((size_t)wanted / os_nodes(), 1);
  return table.for_heaps == 0 ? 1 : table.max_by_cpus[node];
}

COLD bool pool_is_far_away(const struct pool *pool) { return pool->node != node_served(); }

#define AGAIN_MS 100u /* for a lock that was waited for in vain before; longer than a thread waits for a processor */

NOINLINE bool pool_wait(struct pool *pool) {
  bool is_taken = lock_wait(&pool->lock, os_milliseconds() + (load_relaxed(&pool->is_stuck) ? AGAIN_MS : STUCK_MS));
  if (UNLIKELY(load_relaxed(&pool->is_stuck) == is_taken))
    store_relaxed(&pool->is_stuck, !is_taken);
  return is_taken;
}

bool pool_is_stuck(struct pool *pool) {
  if (LIKELY(!load_relaxed(&pool->is_stuck)))
    return false;
  if (lock_is_held(&pool->lock))
    return true;
  store_relaxed(&pool->is_stuck, false);
  return false;
}

/* Returns the pool with the fewest heaps among the first `max` of a node; of several the one with the lowest id. left:
 * a pool that is not returned (of several then the one with the highest id), or NULL. Returns NULL if the node has
 * fewer than `max`, and all of them have heaps. *reserve: an inherited one, another node's, or one that has heaps;
 * unchanged if there is none. */
static struct pool *pool_with_room(unsigned node, uint32_t max, const struct pool *left, struct pool **reserve) {
  struct pool *best = NULL;
  uint32_t usable = 0;
  for (uint32_t id = 1, count = pool_count(); id <= count && usable < max; id++) {
    struct pool *pool = pool_by_id(id);
    if (pool->is_shared || pool_is_stuck(pool))
      continue;
    if (pool_is_inherited(pool) || pool->node != node) {
      *reserve = pool;
      continue;
    }
    usable++;
    if (pool != left && (best == NULL || pool_heaps(pool) < pool_heaps(best) + (left != NULL)))
      best = pool;
  }
  if (best == NULL || usable == max || pool_heaps(best) == 0)
    return best;
  *reserve = best;
  return NULL;
}

struct pool *pool_attach(void) {
  struct pool *reserve = NULL; /* if no pool can be made */
  HOLD_LOCK(&table.lock);
  bool is_counted = table.for_heaps > 0 && table.max_by_cpus[0] == 0;
  if (is_counted)
    processors_count();
  unsigned node = node_served();
  struct pool *pool = pool_with_room(node, pools_max(node), NULL, &reserve);
  bool asks = table.asked_in_vain < ASKS_MAX || pools_heaps() >= 2 * table.heaps_asked;
  if (pool != NULL && pool_heaps(pool) > 0 && option_value(OPTION_POOLS) == 0 && asks && !is_counted) {
    processors_count();
    pool = pool_with_room(node, pools_max(node), NULL, &reserve);
  }
  if (pool == NULL && (pool = pool_make(KIND_ORDINARY, node)) == NULL)
    pool = reserve;
  if (pool)
    heap_attached(pool);
  return pool;
}

COLD struct pool *pool_attach_apart(const struct pool *left) {
  struct pool *ignored = NULL;
  HOLD_LOCK(&table.lock);
  if (option_value(OPTION_POOLS) != 0)
    return NULL;
  unsigned node = node_served();
  struct pool *pool = pool_with_room(node, PARTS * pools_max(node), left, &ignored);
  if (pool == NULL)
    pool = pool_make(KIND_ORDINARY, node);
  if (pool)
    heap_attached(pool);
  return pool;
}

bool pool_detach(struct pool *pool) {
  atomic_fetch_sub_explicit(&heaps_attached, 1, memory_order_relaxed);
  return atomic_fetch_sub_explicit(&pool->heaps, 1, memory_order_seq_cst) == 1;
}

void pool_set_heaps(struct pool *pool, uint32_t count) {
  size_t before = atomic_exchange_explicit(&pool->heaps, count, memory_order_seq_cst);
  atomic_fetch_add_explicit(&heaps_attached, count - before, memory_order_relaxed);
}

void pool_list(struct pool *pool, struct heap *heap) {
  heap->next_attached = pool->attached;
  pool->attached = heap;
  heap_attached(pool);
}

bool pool_unlist(struct pool *pool, struct heap *heap) {
  struct heap **link = &pool->attached;
  while (*link != NULL && *link != heap)
    link = &(*link)->next_attached;
  if (*link == NULL)
    return false; /* the pool's life is over */
  *link = heap->next_attached;
  return pool_detach(pool);
}

bool pool_is_inherited(const struct pool *pool) { return pool->id <= load_relaxed(&inherited.pools); }

/* Of the pools up to an id. */
static size_t taken_bytes(uint32_t last) {
  size_t bytes = 0;
  for (struct pool *pool = pool_next(NULL); pool && pool->id <= last; pool = pool_next(pool))
    bytes += slab_set_taken_bytes(&pool->slabs);
  return bytes;
}

static size_t inherited_bytes(void) { return taken_bytes(load_relaxed(&inherited.pools)); }
size_t pools_live_bytes(void) { return taken_bytes(UINT32_MAX); }

COLD bool pools_inherited_freed(unsigned share) {
  return inherited_bytes() < inherited.bytes - inherited.bytes / share;
}

COLD void pools_inherit(bool are_inherited) {
  store_relaxed(&inherited.pools, are_inherited ? pool_count() : 0);
  table.generation += are_inherited;
  inherited.bytes = inherited_bytes();
}

uint32_t pools_generation(void) { return table.generation; }

COLD void pools_in_child(struct pool *left) {
  for (struct pool *pool = pool_next(NULL); pool; pool = pool_next(pool)) {
    if (pool_heaps(pool) == (pool == left)) /* a write would copy the page */
      continue;
    pool_set_heaps(pool, pool == left);
    if (pool_is_private(pool))
      pool->attached = NULL;
  }
}

size_t pools_heaps(void) { return load_relaxed(&heaps_attached); }
