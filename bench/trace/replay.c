/* replay.c: does the steps of a plan (plan.h), thread by thread, on whatever malloc it gets.
 *
 * Blocks are written as a program would, roughly: the first byte, one byte a page, and the last one. What is written
 * depends on the block, and is read back before the block is freed or resized: the hash is made of what was read, so it
 * is the same on every allocator, and another one means that blocks overlapped or lost their content. */
#include "../bench.h"
#include "plan.h"

#include <errno.h>
#include <fcntl.h>
#include <sched.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/stat.h>
#include <unistd.h>

enum { TOUCH = 4096, SPINS = 200, YIELDS = 50, NAP_NS = 20000, NAP_NS_MAX = 1000000, STACK_BYTES = 256 << 10 };
enum { SEATS_AT_ONCE_MAX = 1 << 20 };

/* A block, or the place for one. Its turn says which step may touch it. */
struct slot {
  unsigned char *block;
  uint64_t size;
  _Atomic uint32_t turn;
  uint32_t value; /* what was written */
};

/* A thread that runs. position: of its next step, or below; UINT64_MAX: nobody sits here. */
struct seat {
  _Alignas(64) _Atomic uint64_t position;
  _Atomic int64_t live; /* bytes that this seat's threads made, less those they freed */
};

struct sample {
  uint64_t step, live, rss_kb;
};

static struct {
  const struct plan_head *head;
  const struct plan_thread *threads;
  const struct plan_record *records;
  const uint64_t *first_record; /* of each thread */
  struct slot *slots;
  struct seat *seats;
  struct sample *samples;
  uint32_t seat_count;
  _Atomic uint32_t started, ended, seats_used; /* threads begun and done; seats ever taken */
  _Atomic uint64_t hash, refused, dirty;
  int statm;
  long page_kb;
} replay;

static struct bench bench = {.name = "replay", .about = "Replays a prepared allocation trace."};

/* --- waiting ----------------------------------------------------------------------------------------- */

/* One more look is due. Short at first: most waits are for a thread that runs. */
static void pause_for(unsigned *tries) {
  unsigned n = (*tries)++;
  if (n < SPINS) {
#ifdef __x86_64__
    __builtin_ia32_pause();
#endif
  } else if (n < SPINS + YIELDS)
    sched_yield();
  else {
    uint64_t nap_ns = (uint64_t)NAP_NS << (n - SPINS - YIELDS < 6 ? n - SPINS - YIELDS : 6);
    bench_sleep_ns(nap_ns < NAP_NS_MAX ? nap_ns : NAP_NS_MAX);
  }
}

static void wait_for_turn(struct slot *slot, uint32_t turn) {
  for (unsigned tries = 0; atomic_load_explicit(&slot->turn, memory_order_acquire) != turn;)
    pause_for(&tries);
}

/* The least position that some thread may still do. What has not started is looked at first: a thread that starts
 * meanwhile has its seat before it counts as started. */
static uint64_t slowest(void) {
  uint32_t started = atomic_load(&replay.started);
  uint64_t least = started < replay.head->threads ? replay.threads[started].begin : UINT64_MAX;
  uint32_t used = atomic_load(&replay.seats_used);
  for (uint32_t i = 0; i < used; i++) {
    uint64_t position = atomic_load_explicit(&replay.seats[i].position, memory_order_acquire);
    if (position < least)
      least = position;
  }
  return least;
}

/* Whoever has to wait lets the others come half the way, so that threads do not change at every step. */
static void keep_together(struct seat *seat, uint64_t position) {
  atomic_store(&seat->position, position);
  if (position <= PLAN_WINDOW || slowest() >= position - PLAN_WINDOW)
    return;
  for (unsigned tries = 0; slowest() < position - PLAN_WINDOW / 2;)
    pause_for(&tries);
}

/* --- steps ------------------------------------------------------------------------------------------- */

static uint32_t value_of(const struct plan_record *record) {
  return (record->slot * 0x9e3779b1u ^ record->turn * 0x85ebca6bu) | 1;
}

static void fill(struct slot *slot, uint32_t value) {
  slot->value = value;
  if (slot->block && slot->size)
    bench_touch(slot->block, slot->size, TOUCH, value);
}

/* What fill wrote, mixed with the size; nothing depends on the order in which threads add it up. */
static uint64_t content(const struct slot *slot) {
  uint64_t read = slot->block && slot->size ? bench_touched(slot->block, slot->size, TOUCH) : 0;
  return bench_mix(bench_mix(slot->size + 1, read), slot->value);
}

static void refuse(void) { atomic_fetch_add(&replay.refused, 1); }

static void take(struct slot *slot, const struct plan_record *record) {
  uint64_t size = plan_argument(record->what);
  unsigned kind = plan_kind(record->what), log2 = plan_alignment_log2(record->what);
  if (kind == PLAN_CALLOC) {
    slot->block = calloc(1, size);
    if (slot->block && size && (slot->block[0] || slot->block[size - 1]))
      atomic_fetch_add(&replay.dirty, 1);
  } else if (kind == PLAN_ALIGNED) {
    void *block = NULL;
    size_t alignment = (size_t)1 << log2;
    slot->block = posix_memalign(&block, alignment < sizeof block ? sizeof block : alignment, size) == 0 ? block : NULL;
    if (((uintptr_t)slot->block & (alignment - 1)) != 0)
      atomic_fetch_add(&replay.dirty, 1);
  } else
    slot->block = malloc(size);
  if (!slot->block && size)
    refuse();
  slot->size = size;
  fill(slot, value_of(record));
}

/* A size of 0 is 1 here: what realloc does with 0 is not the same everywhere. */
static uint64_t resize(struct slot *slot, const struct plan_record *record) {
  uint64_t size = plan_argument(record->what), read = content(slot);
  unsigned char first = slot->block && slot->size ? slot->block[0] : 0;
  unsigned char *block = realloc(slot->block, size ? size : 1);
  if (!block) {
    refuse();
    free(slot->block);
  } else if (slot->block && slot->size && block[0] != first)
    atomic_fetch_add(&replay.dirty, 1);
  slot->block = block;
  slot->size = size;
  fill(slot, value_of(record));
  return read;
}

static uint64_t live_now(void) {
  int64_t live = 0;
  uint32_t used = atomic_load(&replay.seats_used);
  for (uint32_t i = 0; i < used; i++)
    live += atomic_load_explicit(&replay.seats[i].live, memory_order_relaxed);
  return live > 0 ? (uint64_t)live : 0;
}

static uint64_t rss_now_kb(void) {
  char text[128];
  ssize_t length = pread(replay.statm, text, sizeof text - 1, 0);
  text[length > 0 ? length : 0] = 0;
  const char *space = strchr(text, ' ');
  uint64_t pages = 0;
  for (const char *c = space ? space + 1 : ""; *c >= '0' && *c <= '9'; c++)
    pages = pages * 10 + (uint64_t)(*c - '0');
  return pages * (uint64_t)replay.page_kb;
}

static void spawn(uint32_t thread);

static void work(uint32_t thread, struct seat *seat) {
  const struct plan_record *record = replay.records + replay.first_record[thread];
  const struct plan_record *end = record + replay.threads[thread].records;
  uint64_t hash = 0;
  int64_t live = atomic_load_explicit(&seat->live, memory_order_relaxed);
  for (; record < end; record++) {
    unsigned kind = plan_kind(record->what);
    if (kind > PLAN_REALLOC) {
      uint64_t argument = plan_argument(record->what);
      if (kind == PLAN_SYNC)
        keep_together(seat, argument);
      else if (kind == PLAN_SPAWN)
        spawn((uint32_t)argument);
      else
        replay.samples[argument] = (struct sample){.live = live_now(), .rss_kb = rss_now_kb()};
      continue;
    }
    struct slot *slot = &replay.slots[record->slot];
    wait_for_turn(slot, record->turn);
    if (kind == PLAN_FREE) {
      hash += content(slot);
      free(slot->block);
      live -= (int64_t)slot->size;
      slot->block = NULL;
    } else if (kind == PLAN_REALLOC) {
      live -= (int64_t)slot->size;
      hash += resize(slot, record);
      live += (int64_t)slot->size;
    } else {
      take(slot, record);
      live += (int64_t)slot->size;
    }
    atomic_store_explicit(&seat->live, live, memory_order_relaxed);
    atomic_store_explicit(&slot->turn, record->turn + 1, memory_order_release);
  }
  atomic_fetch_add(&replay.hash, hash);
  atomic_store(&seat->position, UINT64_MAX); /* another thread may sit down now */
  atomic_fetch_add(&replay.ended, 1);
}

/* --- threads ----------------------------------------------------------------------------------------- */

/* The lowest seat that is free. Spawns come one after another, so nobody else looks for one. */
static struct seat *seat_take(uint64_t position) {
  uint32_t used = atomic_load(&replay.seats_used);
  for (uint32_t i = 0;; i++) {
    if (i == replay.seat_count)
      bench_die("more than %u threads at once", replay.seat_count);
    if (i < used && atomic_load(&replay.seats[i].position) != UINT64_MAX)
      continue;
    atomic_store(&replay.seats[i].position, position);
    if (i == used)
      atomic_store(&replay.seats_used, used + 1);
    return &replay.seats[i];
  }
}

/* What a thread is told, in one word: malloc is for the replay's blocks. */
static void *body(void *argument) {
  uint64_t word = (uint64_t)(uintptr_t)argument;
  work((uint32_t)(word >> 32), &replay.seats[(uint32_t)word]);
  return NULL;
}

static void spawn(uint32_t thread) {
  for (unsigned tries = 0; atomic_load(&replay.started) != thread;)
    pause_for(&tries);
  struct seat *seat = seat_take(replay.threads[thread].begin);
  atomic_store(&replay.started, thread + 1);
  pthread_attr_t attributes;
  pthread_t made;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setstacksize(&attributes, STACK_BYTES);
  uint64_t word = (uint64_t)thread << 32 | (uint64_t)(seat - replay.seats);
  int error = pthread_create(&made, &attributes, body, (void *)(uintptr_t)word);
  if (error)
    bench_die("no thread: %s", strerror(error));
  pthread_attr_destroy(&attributes);
}

/* --- the plan ---------------------------------------------------------------------------------------- */

static _Noreturn void bad_plan(const char *path, const char *what) {
  fprintf(stderr, "replay: %s: %s\n", path, what);
  exit(2);
}

static void read_all(int fd, void *into, size_t bytes, const char *path) {
  for (size_t done = 0; done < bytes;) {
    ssize_t count = read(fd, (char *)into + done, bytes - done);
    if (count < 0 && errno == EINTR)
      continue;
    if (count <= 0)
      bad_plan(path, "cannot be read");
    done += (size_t)count;
  }
}

static void read_plan(const char *path) {
  struct stat found;
  int fd = open(path, O_RDONLY | O_CLOEXEC);
  struct plan_head head;
  if (fd < 0 || fstat(fd, &found))
    bad_plan(path, strerror(errno));
  size_t bytes = (size_t)found.st_size;
  if (!S_ISREG(found.st_mode) || bytes < sizeof head)
    bad_plan(path, "is no plan of hak replay");
  char *memory = bench_table(&bench, bytes, 1);
  read_all(fd, memory, bytes, path);
  close(fd);
  memcpy(&head, memory, sizeof head);
  if (head.mark != PLAN_MARK || head.version != PLAN_VERSION)
    bad_plan(path, "is no plan of hak replay, or of another version");
  if (head.threads == 0 || head.samples > PLAN_SAMPLES || head.records > bytes / sizeof(struct plan_record) ||
      head.threads > bytes / sizeof(struct plan_thread) || head.slots > head.records ||
      bytes != sizeof head + head.threads * sizeof(struct plan_thread) + head.records * sizeof(struct plan_record))
    bad_plan(path, "has wrong numbers in its head");
  replay.head = (const struct plan_head *)memory;
  replay.threads = (const struct plan_thread *)(memory + sizeof head);
  replay.records = (const struct plan_record *)(replay.threads + head.threads);
  uint64_t *first = bench_table(&bench, head.threads, sizeof *first), records = 0, begin = 0;
  for (uint32_t i = 0; i < head.threads; i++) {
    first[i] = records;
    if (replay.threads[i].records > head.records - records || replay.threads[i].begin < begin)
      bad_plan(path, "has wrong numbers of steps");
    records += replay.threads[i].records;
    begin = replay.threads[i].begin;
  }
  for (uint64_t i = 0; i < head.records; i++) {
    uint64_t what = replay.records[i].what, argument = plan_argument(what);
    unsigned kind = plan_kind(what);
    if (records != head.records || kind >= PLAN_KINDS ||
        (kind <= PLAN_REALLOC && replay.records[i].slot >= head.slots) ||
        (kind == PLAN_SAMPLE && argument >= head.samples) ||
        (kind == PLAN_SPAWN && (argument == 0 || argument >= head.threads)) || plan_alignment_log2(what) > 47)
      bad_plan(path, "has a wrong step");
  }
  replay.first_record = first;
  replay.slots = bench_table(&bench, head.slots, sizeof *replay.slots);
  replay.seat_count = head.threads < SEATS_AT_ONCE_MAX ? head.threads : SEATS_AT_ONCE_MAX;
  replay.seats = bench_table(&bench, replay.seat_count, sizeof *replay.seats);
  replay.samples = bench_table(&bench, head.samples + 1, sizeof *replay.samples);
}

static void write_samples(const char *path) {
  FILE *out = fopen(path, "we");
  if (!out)
    bench_die("%s: %s", path, strerror(errno));
  fputs("step,live_kb,rss_kb\n", out);
  for (uint32_t i = 0; i < replay.head->samples; i++)
    fprintf(out, "%ju,%ju,%ju\n", (uintmax_t)((uint64_t)i * replay.head->steps / replay.head->samples),
            (uintmax_t)(replay.samples[i].live / 1024),
            (uintmax_t)(replay.samples[i].rss_kb > bench.tables_kb ? replay.samples[i].rss_kb - bench.tables_kb : 0));
  if (fclose(out))
    bench_die("%s: %s", path, strerror(errno));
}

static _Noreturn void usage(int status) {
  fputs("usage: replay PLAN [--samples FILE] [--json]\n"
        "Replays a plan that `hak replay` made of an allocation trace.\n"
        "  --samples FILE  live bytes and resident memory on the way, as CSV\n"
        "  --json          one JSON object instead of a line\n",
        status ? stderr : stdout);
  exit(status);
}

int main(int argc, char **argv) {
  const char *plan = NULL, *samples = NULL;
  for (int i = 1; i < argc; i++) {
    if (strcmp(argv[i], "--help") == 0)
      usage(0);
    else if (strcmp(argv[i], "--json") == 0)
      bench.json = true;
    else if (strcmp(argv[i], "--samples") == 0 && i + 1 < argc)
      samples = argv[++i];
    else if (argv[i][0] == '-' || plan)
      usage(2);
    else
      plan = argv[i];
  }
  if (!plan)
    usage(2);
  replay.page_kb = sysconf(_SC_PAGESIZE) / 1024;
  replay.statm = open("/proc/self/statm", O_RDONLY | O_CLOEXEC);
  read_plan(plan);
  for (uint32_t i = 0; i < replay.seat_count; i++)
    atomic_store(&replay.seats[i].position, UINT64_MAX);

  uint64_t rss_start_kb = bench_status_kb("VmRSS:");
  atomic_store(&replay.seats[0].position, 0);
  atomic_store(&replay.seats_used, 1);
  atomic_store(&replay.started, 1);
  prctl(PR_SET_TIMERSLACK, 1000); /* naps are short; threads inherit it */
  bench_start(&bench);
  work(0, &replay.seats[0]);
  for (unsigned tries = 0; atomic_load(&replay.ended) != replay.head->threads;)
    pause_for(&tries);
  bench_stop(&bench, replay.head->steps);

  uint64_t sampled = 0;
  for (uint32_t i = 0; i < replay.head->samples; i++)
    if (replay.samples[i].live > sampled)
      sampled = replay.samples[i].live;
  /* What the process has before its first step, its code for instance, is no heap either. */
  bench_extra(&bench, "start_kb", (double)(rss_start_kb > bench.tables_kb ? rss_start_kb - bench.tables_kb : 0));
  bench_extra(&bench, "live_peak_kb", (double)(replay.head->live_peak / 1024));
  bench_extra(&bench, "live_sampled_kb", (double)(sampled / 1024));
  bench_extra(&bench, "live_end_kb", (double)(live_now() / 1024));
  bench_extra(&bench, "threads", replay.head->threads);
  bench_extra(&bench, "refused", (double)atomic_load(&replay.refused));
  bench_extra(&bench, "dirty", (double)atomic_load(&replay.dirty));
  if (samples)
    write_samples(samples);
  return bench_report(&bench, atomic_load(&replay.hash) + atomic_load(&replay.dirty) * 0x9e3779b97f4a7c15ull);
}
