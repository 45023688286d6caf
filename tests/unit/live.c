/* live: snapshots of the live page, written as fast as can be, are read whole or not at all. Time is made by the test:
 * every slow path writes one. `unit-live blind` reads without the sequence, `unit-live silent` has a writer who does
 * not tell of his changes: both must fail. */
#include "unit.h"

#include "inspect/shared.h"
#include "live/large_sites.h"
#include "live/live.h"
#include "tools/live_read.h"

#include <sched.h>

#define READERS 8
#define WRITERS 3
#define READ_NS 400000000u
#define SNAPSHOTS_MIN 10u

static _Atomic uint64_t now_ms = 1000000;
static _Atomic bool time_runs;

TEST_WRAP(uint64_t, os_milliseconds, void) {
  return atomic_load(&time_runs) ? atomic_fetch_add(&now_ms, 100000) : atomic_load(&now_ms);
}

/* A descriptor whose number is given to another file once its link was read; -1: none. */
static _Atomic int passing = -1;

TEST_WRAP(ssize_t, readlinkat, int folder, const char *restrict name, char *restrict target, size_t bytes) {
  ssize_t length = __real_readlinkat(folder, name, target, bytes);
  int number = atomic_load(&passing);
  if (number >= 0 && strtol(name, NULL, 10) == number) {
    atomic_store(&passing, -1);
    dup2(STDERR_FILENO, number);
  }
  return length;
}

static _Atomic bool is_over, is_torn;
static _Atomic uint64_t taken;

static void *write_snapshots(void *unused) {
  while (!atomic_load(&is_over)) {
    void *block = hak_malloc(400000); /* takes a slow path */
    assert_non_null(block);
    hak_free(block);
  }
  return NULL;
}

/* What a reader sees who does not look at the sequence: whatever lies in slot 0. */
static bool slot_is_whole(const struct live_process *process) {
  const _Atomic uint64_t *slot = (const _Atomic uint64_t *)(const void *)(process->page + process->head.slot_at[0]);
  uint64_t sum = 0, said = atomic_load(slot + LIVE_CHECKSUM);
  for (uint32_t i = LIVE_CHECKSUM + 1; i < process->head.slot_words; i++)
    sum = live_checksum_on(sum, atomic_load_explicit(slot + i, memory_order_relaxed));
  return sum == said;
}

static void read_once(struct live_process *process, uint64_t *last) {
  if (unit_lies("blind")) {
    if (!slot_is_whole(process))
      atomic_store(&is_torn, true);
    return;
  }
  if (!live_take(process, 0)) {
    /* Lapped all the time is no harm: what counts is that nothing torn passes for whole. */
    if (strstr(process->sentence, "does not hold still") == NULL)
      atomic_store(&is_torn, true);
    return;
  }
  struct live_rows classes = live_table(process, "classes");
  for (uint32_t row = 0; row < classes.count; row++) {
    uint64_t in_slabs = live_value(process, &classes, row, "slab_bytes");
    if (in_slabs == 0 || live_value(process, &classes, row, "taken_bytes") > in_slabs)
      atomic_store(&is_torn, true);
  }
  if (process->words[LIVE_NUMBER] < *last)
    atomic_store(&is_torn, true);
  atomic_fetch_add(&taken, process->words[LIVE_NUMBER] != *last);
  *last = process->words[LIVE_NUMBER];
}

static void *read_snapshots(void *unused) {
  struct live_process process;
  uint64_t last = 0, until_ns = os_nanoseconds() + READ_NS;
  if (!live_open(&process, getpid()))
    abort();
  /* A machine that stands still for that long leaves none of the time. */
  uint64_t patience_ns = until_ns + TEST_PATIENCE_SECONDS * UINT64_C(1000000000);
  while (os_nanoseconds() < until_ns ||
         (atomic_load(&taken) <= SNAPSHOTS_MIN && !atomic_load(&is_torn) && os_nanoseconds() < patience_ns)) {
    read_once(&process, &last);
    sched_yield(); /* there may be fewer cores than readers */
  }
  live_close(&process);
  return NULL;
}

/* Writes into both slots, and the sequence stays even. */
static void *scribble(void *page) {
  struct live_head *head = page;
  for (uint64_t value = 1; !atomic_load(&is_over); value++)
    for (unsigned slot = 0; slot < 2; slot++) {
      _Atomic uint64_t *words = (_Atomic uint64_t *)(void *)((char *)page + head->slot_at[slot]);
      for (uint32_t i = LIVE_HEADER_WORDS; i < head->slot_words; i++)
        atomic_store_explicit(words + i, value, memory_order_relaxed);
    }
  return NULL;
}

/* The page as its process has it mapped. */
static void *own_page(void) {
  FILE *maps = fopen("/proc/self/maps", "re");
  char line[4096];
  void *page = NULL;
  while (maps && page == NULL && fgets(line, sizeof line, maps))
    if (strstr(line, LIVE_FILE_NAME) && strstr(line, "rw-s"))
      page = (void *)(uintptr_t)strtoull(line, NULL, 16);
  if (maps)
    fclose(maps);
  return page;
}

UNIT_TEST(nothing_torn_is_taken) {
  pthread_t readers[READERS], writers[WRITERS];
  atomic_store(&time_runs, true);
  for (unsigned i = 0; i < WRITERS; i++)
    pthread_create(&writers[i], NULL, unit_lies("silent") && i == 0 ? scribble : write_snapshots, own_page());
  for (unsigned i = 0; i < READERS; i++)
    pthread_create(&readers[i], NULL, read_snapshots, NULL);
  for (unsigned i = 0; i < READERS; i++)
    pthread_join(readers[i], NULL);
  atomic_store(&is_over, true);
  for (unsigned i = 0; i < WRITERS; i++)
    pthread_join(writers[i], NULL);
  atomic_store(&time_runs, false);
  assert_false(atomic_load(&is_torn));
  print_message("%ju snapshots taken\n", (uintmax_t)atomic_load(&taken));
  assert_true(atomic_load(&taken) > SNAPSHOTS_MIN);
}

/* A process that reads live pages has descriptors of them for a moment. Their numbers are other files' next. */
UNIT_TEST(a_descriptor_that_passes_is_no_page) {
  struct live_process process;
  char path[32];
  snprintf(path, sizeof path, "/proc/%d", getpid());
  int folder = open(path, O_PATH | O_DIRECTORY | O_CLOEXEC), number = live_find_file(folder, LIVE_FILE_NAME, O_RDONLY);
  assert_in_range(number, 0, 511); /* the page's own one comes behind it */
  atomic_store(&passing, number);
  assert_true(live_open(&process, getpid()));
  assert_int_equal(atomic_load(&passing), -1);
  live_close(&process);
  close(number);
  close(folder);
}

/* The sequence's rule, around every number where something changes. */
UNIT_TEST(what_is_whole) {
  for (uint64_t k = 1; k < 4; k++) {
    assert_false(live_is_whole(k, 2 * k - 1)); /* being written */
    assert_true(live_is_whole(k, 2 * k));
    assert_true(live_is_whole(k, 2 * k + 1)); /* the other slot is */
    assert_true(live_is_whole(k, 2 * k + 2));
    assert_false(live_is_whole(k, 2 * k + 3)); /* this one again */
  }
  assert_int_equal(live_snapshot_of(1), 0);
  assert_int_equal(live_snapshot_of(2), 1);
  assert_int_equal(live_snapshot_of(3), 1);
}

/* Every access of the program to the page stays possible: nobody shortens it, and readers do not write. */
UNIT_TEST(the_page_is_sealed) {
  struct os_shared shared;
  assert_true(os_shared_make(&shared, "unit", 1, OS_SHARED_READ));
  assert_true(shared.fd >= 512 && shared.bytes == os_page_bytes());
  assert_true(os_shared_is_open(&shared));
  char path[64];
  snprintf(path, sizeof path, "/proc/self/fd/%d", shared.fd);
  int fd = open(path, O_RDWR);
  assert_true(fd >= 0);
  assert_int_equal(ftruncate(fd, 0), -1);
  assert_int_equal(ftruncate(fd, (off_t)shared.bytes * 2), -1);
  if (fcntl(fd, F_GET_SEALS) & 0x10 /* F_SEAL_FUTURE_WRITE */) {
    assert_int_equal(write(fd, "x", 1), -1);
    assert_true(mmap(NULL, shared.bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0) == MAP_FAILED);
  }
  ((char *)shared.base)[shared.bytes - 1] = 7;
  char last = 0;
  assert_int_equal(pread(fd, &last, 1, (off_t)shared.bytes - 1), 1);
  assert_int_equal(last, 7);
  close(fd);
  /* The program closes our descriptor and gets its number for a file of its own: that stays open. */
  int own = shared.fd;
  close(own);
  assert_int_equal(dup2(0, own), own);
  assert_false(os_shared_is_open(&shared));
  os_shared_drop(&shared);
  assert_true(fcntl(own, F_GETFD) >= 0);
  close(own);
}

UNIT_TEST(sites_in_page) {
  struct large_site before, site;
  uint32_t hash = site_hash(0x1234);
  large_site_changed(hash, 0x1234, 1, 0, 1000);
  large_site_changed(hash, 0x1234, 1, 0, 500);
  large_site_changed(hash, 0, 0, 500, 700);
  large_site_changed(hash, 0, -1, 1000, 0);
  bool found = false;
  for (unsigned i = 0; i <= LARGE_SITES && !found; i++)
    found = large_site_get(i, &site) && site.address == 0x1234;
  assert_true(found);
  assert_int_equal(site.live_count, 1);
  assert_int_equal(site.live_bytes, 700);
  assert_int_equal(site.taken_count, 2);
  assert_int_equal(site.taken_bytes, 1700);
  /* More sites than places: the others share one, and none is lost. */
  for (uintptr_t i = 1; i <= 1000; i++)
    large_site_changed(site_hash(i << 20), i << 20, 1, 0, 1);
  size_t count = 0;
  for (unsigned i = 0; i <= LARGE_SITES; i++)
    count += large_site_get(i, &site) ? site.taken_count : 0;
  assert_true(count >= 1002);
  assert_true(large_site_get(LARGE_SITES, &before) && before.taken_count >= 1000 - LARGE_SITES);
  for (uintptr_t i = 1; i <= 1000; i++)
    large_site_changed(site_hash(i << 20), 0, -1, 1, 0);
  assert_true(large_site_get(LARGE_SITES, &site));
  assert_int_equal(site.live_count, 0);
}

static void begin(void) {
  unit_alone();
  unit_option("HAKMEM_LIVE", "on");
  live_begin();
}

UNIT_MAIN(begin())
