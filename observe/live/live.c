#include "live/live.h"

#include "base/options.h"
#include "heap/ids.h"
#include "heap/slow_path.h"
#include "inspect/process.h"
#include "inspect/shared.h"
#include "live/control.h"
#include "live/large_sites.h"
#include "live/live_page.h"
#include "os/filter.h"
#include "os/os.h"
#include "reclaim/background.h"
#include "stats/stats.h"
#include "threads/registry.h"
#include "threads/watch.h"

#include <string.h>

#define PERIOD_MS_MIN 100u
#define SLOW_PATH_SHARE 400u   /* slow paths spend at most this fraction of the time on snapshots */
#define LOOK_SHARE 10u         /* the background thread spends at most this fraction */
#define SLOW_PATH_HEAPS_MAX 8u /* with more heaps only the thread takes snapshots, because it waits for their locks */
#define MAKES_MAX 4u           /* pages made, for a program that closes our descriptor again and again */
#define POOL_ROWS 64u          /* the largest pools have rows */
#define HEAP_ROWS 64u          /* the heaps with the largest bins have rows */

enum table { TABLE_MOMENT, TABLE_TOTALS, TABLE_CLASSES, TABLE_POOLS, TABLE_HEAPS, TABLE_SITES, TABLE_COUNT };
_Static_assert(TABLE_COUNT <= LIVE_TABLES_MAX, "all tables fit");

#define NAMES(strings) .names = (strings), .names_bytes = sizeof(strings) - 1
#define TOTAL_NAME(group, name, kind, unit, sentence) #name "\0"
static const struct table_form {
  const char *name;
  const char *names; /* of the columns, each terminated */
  uint32_t names_bytes, rows_max;
  uint32_t rank; /* if there are more rows, those with the most in this column stay */
} forms[TABLE_COUNT] = {
    [TABLE_MOMENT] = {"moment", NAMES("time_ns\0cost_ns\0"), 1, 0},
    [TABLE_TOTALS] = {"totals", NAMES(HAK_STATS_ROWS(TOTAL_NAME)), 1, 0},
    [TABLE_CLASSES] = {"classes", NAMES("block_bytes\0slab_bytes\0taken_bytes\0bin_bytes\0"), HAK_CLASS_COUNT, 0},
    [TABLE_POOLS] = {"pools", NAMES("id\0heaps\0slab_bytes\0taken_bytes\0inbox_bytes\0"), POOL_ROWS, 2},
    [TABLE_HEAPS] = {"heaps", NAMES("id\0thread_id\0parked\0pool\0bin_bytes\0refills\0flushes\0"), HEAP_ROWS, 4},
    [TABLE_SITES] = {"sites", NAMES("address\0live_count\0live_bytes\0taken_count\0taken_bytes\0"), LARGE_SITES + 1, 0},
};

_Atomic uint32_t live_keeping;

static struct {
  struct lock lock; /* only tried: a thread that finds it held leaves the work to the holder */
  struct os_shared shared, control;
  struct live_head *head;
  _Atomic int pid;
  unsigned makes;
  _Atomic uint64_t written_ms; /* time of the last snapshot */
  _Atomic uint64_t cost_ns;    /* its CPU time; waiting costs nothing */
  struct hak_stats stats;
  struct class_figures classes[HAK_CLASS_COUNT];
} live SPARSE;

/* --- the page --- */

/* Fills in an empty head, except the page's length. Returns the bytes that the page needs. */
static size_t head_fill(struct live_head *head) {
  uint32_t names_end = sizeof *head, words = LIVE_HEADER_WORDS;
  for (unsigned i = 0; i < TABLE_COUNT; i++) {
    const struct table_form *form = &forms[i];
    struct live_table *table = &head->tables[i];
    memcpy(table->name, form->name, strlen(form->name));
    table->rows_max = form->rows_max;
    table->names_at = names_end;
    table->words_at = words;
    for (uint32_t at = 0; at < form->names_bytes; at++)
      table->columns += form->names[at] == 0;
    names_end += form->names_bytes;
    words += 1 + table->columns * table->rows_max;
  }
  uint32_t slot_bytes = (uint32_t)round_up(words * sizeof(uint64_t), CACHE_LINE);
  memcpy(head->mark, LIVE_MARK, sizeof head->mark);
  head->layout = LIVE_LAYOUT;
  head->slot_at[0] = (uint32_t)round_up(names_end, CACHE_LINE);
  head->slot_at[1] = head->slot_at[0] + slot_bytes;
  head->slot_words = words;
  head->table_count = TABLE_COUNT;
  head->pid = (uint64_t)os_process_id();
  head->made_ns = os_nanoseconds();
  memcpy(head->version, hak_version(), min_size(strlen(hak_version()), LIVE_VERSION_BYTES - 1));
  return head->slot_at[1] + slot_bytes;
}

/* --- a snapshot --- */

static _Atomic uint64_t *words_of(uint64_t snapshot) {
  return (_Atomic uint64_t *)(void *)((char *)live.head + live.head->slot_at[snapshot % 2]);
}

/* A release store: no reader sees the value before the odd sequence number. A fence would do, but ThreadSanitizer does
 * not know fences. */
static void put_word(_Atomic uint64_t *word, uint64_t value) {
  atomic_store_explicit(word, value, memory_order_release);
}

/* Adds a row, or puts it in place of another if the table is full. */
static void put_row(_Atomic uint64_t *words, enum table table, const uint64_t *values) {
  const struct live_table *form = &live.head->tables[table];
  size_t columns = form->columns, rank = forms[table].rank;
  _Atomic uint64_t *count = words + form->words_at, *rows = count + 1, *row = rows;
  if (load_relaxed(count) < form->rows_max) {
    row += load_relaxed(count) * columns;
    put_word(count, load_relaxed(count) + 1);
  } else {
    for (uint32_t i = 1; i < form->rows_max; i++)
      if (load_relaxed(rows + i * columns + rank) < load_relaxed(row + rank))
        row = rows + i * columns;
    if (load_relaxed(row + rank) >= values[rank])
      return;
  }
  for (uint32_t column = 0; column < columns; column++)
    put_word(row + column, values[column]);
}

static void write_classes(_Atomic uint64_t *words) {
  for (unsigned cls = 1; cls < HAK_CLASS_COUNT; cls++) {
    const struct class_figures *sums = &live.classes[cls];
    const uint64_t values[] = {class_bytes(cls), sums->slabs * class_slab_bytes(cls),
                               sums->taken_blocks * class_bytes(cls), sums->bin_blocks * class_bytes(cls)};
    if (sums->slabs > 0)
      put_row(words, TABLE_CLASSES, values);
  }
}

static void write_pools(_Atomic uint64_t *words) {
  for (struct pool *at = pool_next(NULL); at; at = pool_next(at)) {
    struct pool_figures pool;
    pool_figures(at, &pool);
    put_row(words, TABLE_POOLS,
            (const uint64_t[]){pool.id, pool.heaps, pool.slab_bytes, pool.taken_bytes, pool.inbox_bytes});
  }
}

static void write_heaps(_Atomic uint64_t *words) {
  for (const struct heap *at = heap_next(NULL); at; at = heap_next(at)) {
    struct heap_figures heap;
    heap_figures(at, &heap);
    const uint64_t values[] = {
        heap.id,        (uint64_t)heap.thread_id, heap.is_parked,        heap.pool_id,
        heap.bin_bytes, heap.counters.refills,    heap.counters.flushes,
    };
    put_row(words, TABLE_HEAPS, values);
  }
}

static void write_sites(_Atomic uint64_t *words) {
  struct large_site site;
  for (unsigned i = 0; i <= LARGE_SITES; i++)
    if (large_site_get(i, &site))
      put_row(words, TABLE_SITES,
              (const uint64_t[]){site.address, site.live_count, site.live_bytes, site.taken_count, site.taken_bytes});
}

static uint64_t checksum_of(_Atomic uint64_t *words) {
  uint64_t sum = 0;
  for (uint32_t i = LIVE_CHECKSUM + 1; i < live.head->slot_words; i++)
    sum = live_checksum_on(sum, load_relaxed(words + i));
  return sum;
}

/* The lock is held. Figures are collected before the slot is written where there is memory for them. */
static void snapshot_write(void) {
  uint64_t begun_ns = os_nanoseconds(), worked_ns = os_thread_nanoseconds();
  struct live_head *head = live.head;
  uint64_t snapshot = live_snapshot_of(load_relaxed(&head->sequence)) + 1;
  _Atomic uint64_t *words = words_of(snapshot);
  stats_take(&live.stats);
  store_relaxed(&head->sequence, 2 * snapshot - 1);
  put_word(words + LIVE_NUMBER, snapshot);
  for (unsigned i = 0; i < TABLE_COUNT; i++)
    put_word(words + head->tables[i].words_at, 0);
  put_row(words, TABLE_TOTALS, (const uint64_t *)&live.stats); /* its fields are the columns, in order */
  write_pools(words);
  write_heaps(words);
  pools_classes(live.classes);
  write_classes(words);
  write_sites(words);
  put_row(words, TABLE_MOMENT, (const uint64_t[]){begun_ns, os_thread_nanoseconds() - worked_ns});
  put_word(words + LIVE_CHECKSUM, checksum_of(words));
  atomic_store_explicit(&head->sequence, 2 * snapshot, memory_order_release);
  store_relaxed(&live.cost_ns, os_thread_nanoseconds() - worked_ns);
  store_relaxed(&live.written_ms, os_milliseconds());
}

/* Tells whether period_ms_min have passed since the last snapshot, and `share` times its CPU time. */
static bool is_due(uint64_t period_ms_min, uint64_t share) {
  uint64_t rest_ms = share * load_relaxed(&live.cost_ns) / 1000000;
  uint64_t written_ms = load_relaxed(&live.written_ms);
  return os_milliseconds() >= written_ms + max_size(period_ms_min, rest_ms);
}

/* --- who writes --- */

/* Executes commands without the lock. If the lock was taken, the client wakes the thread again. */
static void serve_commands(void) {
  if (!lock_try(&live.lock))
    return;
  struct os_shared control = live.control; /* no other one is made while this thread runs */
  if (live.pid != os_process_id())
    control.base = NULL;
  lock_give(&live.lock);
  control_serve(&control);
}

/* The background thread calls it, in a slow path, when a reader or client wakes it. */
static void look_when_woken(void) {
  serve_commands();
  if (!is_due(0, LOOK_SHARE) || !lock_try(&live.lock))
    return;
  if (live.pid == os_process_id())
    snapshot_write();
  lock_give(&live.lock);
}

/* The lock is held. An earlier page stays mapped, because another thread may be about to wake its futex word. If the
 * file for commands cannot be made, the page is still made. */
static bool page_make(void) {
  struct os_shared made, control;
  struct live_head filled = {0};
  size_t bytes = head_fill(&filled);
  if (live.makes == MAKES_MAX)
    return false;
  control_make(&control); /* before the page: who sees that looks for this, too */
  bool is_made = os_shared_make(&made, LIVE_FILE_NAME, bytes, OS_SHARED_READ);
  struct live_head *head = made.base;
  if (is_made) {
    live.makes++;
    filled.page_bytes = (uint32_t)made.bytes;
    memcpy(head, &filled, sizeof filled);
    for (unsigned i = 0; i < TABLE_COUNT; i++)
      memcpy((char *)head + filled.tables[i].names_at, forms[i].names, forms[i].names_bytes);
  }
  if (!is_made || !background_watch(&head->awake, look_when_woken)) {
    os_shared_drop(&made);
    os_shared_drop(&control);
    return false;
  }
  os_shared_drop(&live.control);
  live.control = control;
  live.shared = made;
  live.head = head;
  live.pid = os_process_id();
  return true;
}

/* The lock is held. Makes the page where there is none yet, or it cannot be found any more, and writes a snapshot. */
static bool page_refresh(void) {
  bool is_kept = load_relaxed(&live_keeping) == LIVE_KEPT;
  if (is_kept && live.pid != os_process_id())
    return false;
  if (!(is_kept && os_shared_is_open(&live.shared)) && !page_make())
    return false;
  snapshot_write();
  atomic_store_explicit(&live_keeping, LIVE_KEPT, memory_order_release);
  return true;
}

void live_begin(void) {
  if (option_value(OPTION_LIVE) != SWITCH_ON || !slow_path_begin())
    return;
  lock_take(&live.lock);
  if (heap_current())
    heap_note_thread(heap_current());
  if (page_refresh())
    background_wish(); /* so that a process that allocates little and sleeps can be read too */
  lock_give(&live.lock);
  slow_path_end();
}

void live_refresh_in_slow_path(void) {
  if (background_watches() || !os_may_read_files() || !is_due(PERIOD_MS_MIN, SLOW_PATH_SHARE))
    return;
  bool is_left = live.pid == os_process_id() && background_wish() && heap_count() > SLOW_PATH_HEAPS_MAX;
  if (is_left || !lock_try(&live.lock))
    return;
  if (is_due(PERIOD_MS_MIN, SLOW_PATH_SHARE) && !page_refresh()) /* else another thread was quicker */
    store_relaxed(&live.written_ms, os_milliseconds());          /* tries again after a while */
  lock_give(&live.lock);
}

COLD void live_in_child(void) {
  if (load_relaxed(&live_keeping) == LIVE_NONE)
    return;
  os_shared_drop(&live.shared);
  os_shared_drop(&live.control);
  live.makes = 0;
  store_relaxed(&live.written_ms, 0);
  store_relaxed(&live_keeping, LIVE_FORKED);
}
