#include "jemalloc/names.h"

#include "jemalloc/arenas.h"
#include "jemalloc/jemalloc.h"
#include "os/os.h"
#include "profile/profile.h"

#include <errno.h>
#include <sched.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#define PAGE_BYTES ((uint64_t)sysconf(_SC_PAGESIZE))

/* Figures of the last epoch: they fit each other, whichever thread reads them. */
enum figure { ALLOCATED, ACTIVE, METADATA, RESIDENT, MAPPED, RETAINED, DIRTY, LARGE, FIGURES };
static _Atomic uint64_t figures[FIGURES];
static _Atomic uint64_t epoch;
static _Atomic int refreshing_pid; /* 0: nobody refreshes. A child of a fork takes over from a thread that it lacks. */

static void figures_take(void) {
  struct hak_stats s;
  if (hak_stats_get(&s) != 0)
    return;
  uint64_t unused = s.extent_purged_bytes + s.extent_unused_bytes;
  uint64_t used = s.mapped_bytes - min_size(s.mapped_bytes, unused + s.metadata_bytes);
  uint64_t active = round_up(max_size(s.heap_bytes, s.live_bytes), PAGE_BYTES);
  const uint64_t now[FIGURES] = {
      [ALLOCATED] = s.live_bytes,
      [ACTIVE] = active,
      [METADATA] = s.metadata_bytes,
      [RESIDENT] = max_size(used, active),
      [MAPPED] = max_size(used, active) + s.metadata_bytes,
      [RETAINED] = s.reserved_bytes - min_size(s.reserved_bytes, s.committed_bytes) + unused,
      [DIRTY] = s.extent_free_bytes + s.large_cached_bytes,
      [LARGE] = s.large_bytes,
  };
  for (unsigned i = 0; i < FIGURES; i++)
    atomic_store_explicit(&figures[i], now[i], memory_order_relaxed);
}

/* The one who refreshes may be the thread that this signal handler interrupted, or may have ended. After a while both
 * do it: at worst the figures of two moments are mixed. */
#define REFRESH_WAIT_MS 100u

static void figures_refresh(void) {
  int self = getpid(), other = 0;
  uint64_t until_ms = os_milliseconds() + REFRESH_WAIT_MS;
  while (!atomic_compare_exchange_strong(&refreshing_pid, &other, self) &&
         (other != self || os_milliseconds() < until_ms))
    if (other == self) {
      sched_yield();
      other = 0;
    }
  figures_take();
  atomic_fetch_add(&epoch, 1);
  atomic_store(&refreshing_pid, 0);
}

static uint64_t figure_of(enum figure which) {
  if (atomic_load(&epoch) == 0)
    figures_refresh();
  return atomic_load_explicit(&figures[which], memory_order_relaxed);
}

/* --- reading ---- */

/* Most need only some of these. */
#define UNUSED __attribute__((unused))
#define READER(name) static int name(const struct row *row UNUSED, const size_t *mib UNUSED, union name_value *value)
#define WRITER(name)                                                                                                   \
  static int name(const struct row *row UNUSED, const size_t *mib UNUSED, union name_value value UNUSED)

READER(read_constant) {
  *value = row->constant;
  return 0;
}
READER(read_figure) {
  value->size = figure_of((enum figure)row->constant.number);
  return 0;
}
READER(read_epoch) {
  figure_of(ALLOCATED);
  value->u64 = atomic_load(&epoch);
  return 0;
}
WRITER(write_epoch) {
  figures_refresh();
  return 0;
}

static bool option_is(const char *name, const char *wanted) {
  char value[HAK_OPTION_BYTES];
  return hak_option_get(name, value, sizeof value) == 0 && strcmp(value, wanted) == 0;
}

READER(read_background) {
  value->is_true = option_is("background", "on");
  return 0;
}
WRITER(write_background) { return hak_option_set("background", value.is_true ? "on" : "off"); }

#define DECAY_MS_MAX 3600000 /* the option's largest; jemalloc takes more */

READER(read_decay) {
  char text[HAK_OPTION_BYTES];
  value->ssize = -1;
  if (!option_is("purge", "off") && hak_option_get("purge_delay_ms", text, sizeof text) == 0)
    value->ssize = atoll(text);
  return 0;
}
WRITER(write_decay) {
  char text[HAK_OPTION_BYTES];
  if (value.ssize < -1)
    return EFAULT;
  value.ssize = value.ssize < DECAY_MS_MAX ? value.ssize : DECAY_MS_MAX;
  if (value.ssize == -1)
    return hak_option_set("purge", "off");
  snprintf(text, sizeof text, "%lld", (long long)value.ssize);
  if (hak_option_set("purge_delay_ms", text) != 0)
    return EFAULT;
  return option_is("purge", "off") ? hak_option_set("purge", "dontneed") : 0;
}

/* --- threads and their caches ---- */

READER(read_thread_arena) {
  value->number = arena_of_thread();
  return 0;
}
WRITER(write_thread_arena) { return arena_enter(value.number); }
WRITER(flush) {
  hak_trim(SIZE_MAX); /* empties bins, gives nothing back */
  return 0;
}

/* A thread has one cache. Others get numbers, and nothing is kept for them. */
static _Atomic unsigned caches;
READER(make_cache) {
  value->number = atomic_fetch_add(&caches, 1) % 4094;
  return 0;
}
WRITER(end_cache) { return 0; }

/* --- arenas ---- */

#define ARENA (mib[1])
#define ARENA_OF_STATS (mib[2])
/* The number may stand for all arenas: MALLCTL_ARENAS_ALL, or, in older programs, the number of arenas. */
static bool means_all(size_t arena) { return arena == MALLCTL_ARENAS_ALL || arena == arena_count(); }
static bool is_arena(size_t arena) { return arena < ARENAS_MAX && arena_exists((unsigned)arena); }

READER(read_initialized) {
  value->is_true = is_arena(ARENA);
  return ARENA < arena_count() || means_all(ARENA) ? 0 : ENOENT;
}
WRITER(purge) {
  if (ARENA == 0 || means_all(ARENA)) {
    hak_trim(0);
    return 0;
  }
  hak_heap *heap = ARENA < ARENAS_MAX ? arena_heap((unsigned)ARENA) : NULL;
  if (heap != NULL)
    hak_heap_trim(heap);
  return heap != NULL ? 0 : ENOENT;
}
WRITER(decay) { /* gives back what is beyond what may stay: the delay has its own clock */
  return means_all(ARENA) || is_arena(ARENA) ? 0 : ENOENT;
}
WRITER(reset) { return ARENA < ARENAS_MAX ? arena_end((unsigned)ARENA, true) : ENOENT; }
WRITER(destroy) { return ARENA < ARENAS_MAX ? arena_end((unsigned)ARENA, false) : ENOENT; }
READER(read_arena_decay) { return means_all(ARENA) || is_arena(ARENA) ? read_decay(row, mib, value) : ENOENT; }
WRITER(write_arena_decay) { return means_all(ARENA) || ARENA == 0 ? write_decay(row, mib, value) : EFAULT; }

READER(read_arena_count) {
  value->number = arena_count();
  return 0;
}
READER(make_arena) {
  value->number = arena_make();
  return value->number != 0 ? 0 : EAGAIN;
}
READER(read_page) {
  value->size = PAGE_BYTES;
  return 0;
}

/* Of arena 0 and of all: the process's figures, which have the other arenas in them. */
READER(read_arena_figure) {
  size_t arena = ARENA_OF_STATS;
  enum figure which = (enum figure)row->constant.number;
  uint64_t bytes;
  hak_heap *heap = arena < ARENAS_MAX ? arena_heap((unsigned)arena) : NULL;
  if (arena == 0 || means_all(arena)) {
    bytes = figure_of(which);
    if (which == ALLOCATED)
      bytes -= min_size(bytes, figure_of(LARGE));
  } else if (heap != NULL) {
    struct hak_heap_stats s;
    hak_heap_stats_get(heap, &s);
    bytes = which == LARGE                        ? s.large_bytes
            : which == ALLOCATED                  ? s.live_bytes - s.large_bytes
            : which == DIRTY || which == RETAINED ? 0
                                                  : s.held_bytes;
  } else {
    return ENOENT;
  }
  bool is_pages = which == ACTIVE || which == DIRTY;
  value->size = is_pages ? bytes / PAGE_BYTES : bytes;
  return 0;
}

/* --- profiles ---- */

READER(read_profiling) {
  value->is_true = profile_is_on();
  return 0;
}
/* A profile that runs goes on: hak_profile_start would begin an empty one. */
WRITER(write_profiling) {
  if (value.is_true == profile_is_on())
    return 0;
  return (value.is_true ? hak_profile_start(0) : hak_profile_stop()) == 0 ? 0 : EFAULT;
}
WRITER(dump) {
  static _Atomic unsigned dumps;
  char own[64];
  if (value.text == NULL)
    snprintf(own, sizeof own, "hakmem.%d.%u.pb.gz", getpid(), atomic_fetch_add(&dumps, 1));
  return hak_profile_dump(value.text ? value.text : own) == 0 ? 0 : EFAULT;
}

/* --- the table, by groups ---- */

#define FIXED(name, type, reader, ...)                                                                                 \
  {                                                                                                                    \
    name, type, reader, NULL, false, { __VA_ARGS__ }                                                                   \
  }
#define BOOL(name, value) FIXED(name, TYPE_BOOL, read_constant, .is_true = (value))
#define TEXT(name, value) FIXED(name, TYPE_TEXT, read_constant, .text = (value))
#define SIZE(name, value) FIXED(name, TYPE_SIZE, read_constant, .size = (value))
#define NUMBER(name, value) FIXED(name, TYPE_UNSIGNED, read_constant, .number = (value))
#define FIGURE(name, reader, which) FIXED(name, TYPE_SIZE, reader, .number = (which))
#define LIVE(name, type, reader, writer) {name, type, reader, writer, false, {0}}
#define ACTION(name, writer) {name, TYPE_NONE, NULL, writer, false, {0}}

const struct row names[] = {
    TEXT("version", JEMALLOC_VERSION),
    {"epoch", TYPE_U64, read_epoch, write_epoch, true, {0}},
    LIVE("background_thread", TYPE_BOOL, read_background, write_background),
    SIZE("max_background_threads", 1),
    LIVE("thread.arena", TYPE_UNSIGNED, read_thread_arena, write_thread_arena),
    BOOL("thread.tcache.enabled", true),
    ACTION("thread.tcache.flush", flush),
    ACTION("thread.idle", flush),
    LIVE("tcache.create", TYPE_UNSIGNED, make_cache, NULL),
    LIVE("tcache.flush", TYPE_UNSIGNED, NULL, end_cache),
    LIVE("tcache.destroy", TYPE_UNSIGNED, NULL, end_cache),
    LIVE("arena.*.initialized", TYPE_BOOL, read_initialized, NULL),
    ACTION("arena.*.decay", decay),
    ACTION("arena.*.purge", purge),
    ACTION("arena.*.reset", reset),
    ACTION("arena.*.destroy", destroy),
    LIVE("arena.*.dirty_decay_ms", TYPE_SSIZE, read_arena_decay, write_arena_decay),
    LIVE("arenas.narenas", TYPE_UNSIGNED, read_arena_count, NULL),
    LIVE("arenas.dirty_decay_ms", TYPE_SSIZE, read_decay, write_decay),
    SIZE("arenas.quantum", BLOCK_ALIGNMENT),
    LIVE("arenas.page", TYPE_SIZE, read_page, NULL),
    LIVE("arenas.create", TYPE_UNSIGNED, make_arena, NULL),
    LIVE("prof.active", TYPE_BOOL, read_profiling, write_profiling),
    LIVE("prof.dump", TYPE_TEXT, NULL, dump),
    BOOL("config.cache_oblivious", false),
    BOOL("config.debug", false),
    BOOL("config.fill", false),
    BOOL("config.lazy_lock", false),
    TEXT("config.malloc_conf", ""),
    BOOL("config.prof", true),
    BOOL("config.stats", true),
    BOOL("config.utrace", false),
    BOOL("config.xmalloc", false),
    BOOL("opt.abort", false),
    BOOL("opt.abort_conf", false),
    LIVE("opt.background_thread", TYPE_BOOL, read_background, NULL),
    LIVE("opt.dirty_decay_ms", TYPE_SSIZE, read_decay, NULL),
    TEXT("opt.dss", "disabled"),
    TEXT("opt.junk", "false"),
    TEXT("opt.metadata_thp", "disabled"),
    NUMBER("opt.narenas", 1),
    TEXT("opt.percpu_arena", "disabled"),
    LIVE("opt.prof", TYPE_BOOL, read_profiling, NULL),
    BOOL("opt.retain", true),
    BOOL("opt.stats_print", false),
    BOOL("opt.tcache", true),
    BOOL("opt.utrace", false),
    BOOL("opt.xmalloc", false),
    BOOL("opt.zero", false),
    FIGURE("stats.allocated", read_figure, ALLOCATED),
    FIGURE("stats.active", read_figure, ACTIVE),
    FIGURE("stats.metadata", read_figure, METADATA),
    FIGURE("stats.resident", read_figure, RESIDENT),
    FIGURE("stats.mapped", read_figure, MAPPED),
    FIGURE("stats.retained", read_figure, RETAINED),
    FIGURE("stats.arenas.*.pactive", read_arena_figure, ACTIVE),
    FIGURE("stats.arenas.*.pdirty", read_arena_figure, DIRTY),
    FIGURE("stats.arenas.*.mapped", read_arena_figure, MAPPED),
    FIGURE("stats.arenas.*.retained", read_arena_figure, RETAINED),
    FIGURE("stats.arenas.*.small.allocated", read_arena_figure, ALLOCATED),
    FIGURE("stats.arenas.*.large.allocated", read_arena_figure, LARGE),
};
const size_t name_count = sizeof names / sizeof *names;
