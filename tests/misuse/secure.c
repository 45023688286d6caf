/* What the preset `secure` promises (docs/security.md), one promise a run: each fails without its option.
 *
 *   secure [stale]    no block shows what others left, in threads, after a trim and in the child of a fork
 *   secure callocs    calloc's blocks are zero, also where freed blocks are not cleared, packed and large ones too
 *   secure long       large objects without guard pages show nothing up to their usable size, and what they grow by
 *   secure wait       freed blocks wait
 *   secure places     each block that is ready is the next one with the same probability
 *   secure lanes      blocks of threads at work lie in slabs of their own
 *   secure apart      the first blocks of a long class lie between pages without access
 *   secure packed     blocks that are packed because a limit leaves little have canaries and are cleared, too
 *   secure canaries   they differ between blocks, parent and child, processes; a child keeps those of before a fork */
#include <math.h>
#include <stdbool.h>
#include <sys/mman.h>
#include <sys/personality.h>
#include <sys/resource.h>

#include "../child.h"
#include "../heap_api.h"
#include "../threads.h"

#define FILL 0x5a
#define QUARANTINE 8               /* the preset's value */
#define DRAW_WAIT (QUARANTINE + 1) /* a block is drawn when the one before it is taken */

static void shows_nothing(const unsigned char *block, size_t size) {
  for (size_t i = 0; i < size; i++)
    CHECK_SAY(block[i] == 0, "byte %zu of %zu shows 0x%x", i, size, block[i]);
}

/* Blocks of all sizes, again and again: new and longer ones read as zero, and the program's bytes stay. */
static void *never_stale(void *seed_of_thread) {
  enum { SLOTS = 64 };
  unsigned char *blocks[SLOTS] = {0};
  size_t sizes[SLOTS];
  uint64_t seed = test_seed + (uintptr_t)seed_of_thread;
  for (long n = test_rounds(1000, 20); n > 0; n--) {
    unsigned i = (unsigned)(test_random(&seed) % SLOTS);
    unsigned shift = (unsigned)(test_random(&seed) % 20);
    size_t size = 1 + test_random(&seed) % ((size_t)2 << shift);
    if (blocks[i] != NULL && n % 3 == 0) {
      unsigned char *moved = t_realloc(blocks[i], size);
      CHECK(moved != NULL && t_usable_size(moved) >= size);
      size_t kept = size < sizes[i] ? size : sizes[i];
      for (size_t b = 0; b < kept; b++)
        CHECK(moved[b] == FILL);
      shows_nothing(moved + kept, size - kept);
      blocks[i] = moved;
    } else {
      t_free(blocks[i]);
      blocks[i] = n % 7 == 0   ? t_aligned_alloc(256, (size + 255) / 256 * 256)
                  : n % 7 == 1 ? t_calloc(1, size)
                               : t_malloc(size);
      CHECK(blocks[i] != NULL && (n % 7 != 0 || (uintptr_t)blocks[i] % 256 == 0));
      shows_nothing(blocks[i], size);
    }
    memset(blocks[i], FILL, sizes[i] = size);
    if (n % 500 == 0)
      t_trim(0);
  }
  t_free_all(blocks, SLOTS);
  return NULL;
}

static void in_threads(void) { test_threads_run(3, never_stale, NULL, 1); }

/* The size of the request is not known there, so what a shrunk object grows by again may show the program's own
 * bytes. */
static void long_ones_show_nothing(void) {
  for (size_t size = 3000000; size > 300000; size -= size / 40) {
    for (int i = 0; i < 3; i++) { /* cached, then as free memory */
      unsigned char *block = CHECK_GOT(t_malloc(size + size / 50));
      memset(block, FILL, t_usable_size(block));
      t_free(block);
      block = CHECK_GOT(t_malloc(size));
      shows_nothing(block, t_usable_size(block));
      for (size_t grown = size; grown < 2 * size; grown += size / 9) {
        size_t before = t_usable_size(block);
        memset(block, FILL, before);
        block = CHECK_GOT(t_realloc(block, grown));
        shows_nothing(block + before, t_usable_size(block) > before ? t_usable_size(block) - before : 0);
      }
      t_free(block);
    }
  }
  unsigned char *sparse = CHECK_GOT(t_malloc((size_t)64 << 20));
  sparse = CHECK_GOT(t_realloc(sparse, (size_t)256 << 20));
  CHECK_SAY(!TEST_RSS_COUNTS || test_rss_kib() < 128 * 1024, "%ld KiB", test_rss_kib());
  t_free(sparse);
}

/* Blocks that were filled and freed come back by calloc. */
static void callocs_are_zero(void) {
  enum { SLOTS = 64, SHIFTS = 19 };
  static unsigned char *blocks[SLOTS];
  for (int turn = 0; turn < 20; turn++)
    for (unsigned shift = 0; shift < SHIFTS; shift++) {
      size_t size = ((size_t)1 << shift) + (size_t)turn;
      for (unsigned i = 0; i < SLOTS; i++) {
        blocks[i] = CHECK_GOT(i % 2 == 0 ? t_malloc(size) : t_calloc(1, size));
        if (i % 2 != 0)
          shows_nothing(blocks[i], size);
        memset(blocks[i], FILL, size);
      }
      t_free_all(blocks, SLOTS);
    }
}

/* A freed block is not given out before QUARANTINE others of its class were freed. */
static void freed_blocks_wait(void) {
  for (int turn = 0; turn < 200; turn++) {
    void *freed[QUARANTINE];
    for (int i = 0; i < QUARANTINE; i++)
      freed[i] = t_malloc(100);
    for (int i = 0; i < QUARANTINE; i++) {
      t_free(freed[i]);
      void *next = t_malloc(100);
      for (int before = 0; before <= i; before++)
        CHECK(next != freed[before]);
      CHECK(next != NULL);
    }
  }
}

/* --- places --- */

enum { KNOWN_MAX = 64, TURNS = 20000 };

/* The blocks of a class that take turns while one is live: a block that was freed waits in the quarantine, and is ready
 * then. freed[] has their turns, 0 for a block that is live. */
static struct {
  char *blocks[KNOWN_MAX];
  long freed[KNOWN_MAX];
  unsigned count;
} known;

static unsigned number_of(char *block) {
  unsigned i = 0;
  while (i < known.count && known.blocks[i] != block)
    i++;
  CHECK_SAY(i < KNOWN_MAX, "more than %d blocks take turns", KNOWN_MAX);
  if (i == known.count) {
    known.blocks[known.count++] = block;
    known.freed[i] = 1; /* the oldest */
  }
  return i;
}

/* Counts the ready blocks that come before this one, by age or by address. */
static unsigned rank_of(unsigned number, long turn, bool by_age) {
  unsigned rank = 0;
  for (unsigned i = 0; i < known.count; i++)
    if (known.freed[i] < turn - DRAW_WAIT)
      rank += by_age ? known.freed[i] < known.freed[number] : known.blocks[i] < known.blocks[number];
  return rank;
}

/* Pearson's test. The bound holds but once in 10^10 runs of a fair draw: a chi-square variable of k degrees exceeds
 * k + 2 sqrt(k t) + 2 t with probability at most e^-t (Laurent and Massart 2000), and e^-23 < 10^-9.9. */
static bool is_uniform(const unsigned *counts, unsigned cells, long draws, double *sum) {
  double expected = (double)draws / cells, degrees = cells - 1;
  *sum = 0;
  for (unsigned i = 0; i < cells; i++)
    *sum += (counts[i] - expected) * (counts[i] - expected) / expected;
  return *sum < degrees + 2 * sqrt(degrees * 23) + 2 * 23;
}

/* The control: the same draws, of which one in 16 was not drawn, are refused. */
static void judge_draws(unsigned *counts, unsigned cells, const char *what) {
  double sum;
  CHECK_SAY(is_uniform(counts, cells, TURNS, &sum), "%s: chi-square %.0f of %u cells", what, sum, cells);
  for (unsigned i = 1; i < cells; i++) {
    counts[0] += counts[i] / 16;
    counts[i] -= counts[i] / 16;
  }
  CHECK_SAY(!is_uniform(counts, cells, TURNS, &sum), "%s: nothing is seen of a bias", what);
}

/* One block is live at a time, so that as many are ready at each turn. Which one is next: by its age, by its address,
 * and by its age together with that of the one before. */
static void places_are_uniform(void) {
  static unsigned by_age[KNOWN_MAX], by_address[KNOWN_MAX], by_pair[KNOWN_MAX * KNOWN_MAX];
  unsigned ready = 0, before = 0;
  for (long turn = 2; turn < 2 * TURNS; turn++) {
    char *block = t_malloc(100);
    unsigned number = number_of(block);
    if (turn == TURNS) {
      CHECK_SAY(known.count > DRAW_WAIT + 1, "%u blocks take turns", known.count);
      ready = known.count - DRAW_WAIT;
    }
    if (turn >= TURNS) {
      unsigned age = rank_of(number, turn, true), place = rank_of(number, turn, false);
      CHECK_SAY(age < ready && place < ready, "%u, %u of %u", age, place, ready);
      by_age[age]++;
      by_address[place]++;
      by_pair[before * ready + age]++;
      before = age;
    }
    known.freed[number] = turn;
    t_free(test_opaque(block));
  }
  judge_draws(by_age, ready, "age");
  judge_draws(by_address, ready, "address");
  judge_draws(by_pair, ready * ready, "ages in turn");
}

/* --- lanes --- */

enum { UNIT_SHIFT = 16, OF_THREAD = 100 };

static void *take_blocks(void *blocks_of_thread) {
  uintptr_t *blocks = blocks_of_thread;
  for (int i = 0; i < OF_THREAD; i++)
    blocks[i] = (uintptr_t)t_malloc(100);
  return NULL;
}

/* The main thread lives meanwhile, so the other one is attached to another pool. */
static void threads_share_no_slab(void) {
  static uintptr_t own[OF_THREAD], others[OF_THREAD];
  take_blocks(own);
  test_thread_run(take_blocks, others);
  for (int i = 0; i < OF_THREAD; i++)
    for (int k = 0; k < OF_THREAD; k++)
      CHECK_SAY(own[i] >> UNIT_SHIFT != others[k] >> UNIT_SHIFT, "two threads have blocks of one slab");
}

/* --- canaries --- */

static uint64_t canary_behind(const char *block, size_t size) {
  uint64_t word;
  memcpy(&word, block + size, sizeof word);
  return word;
}

/* A block of before the fork keeps its canary; the child's new blocks have others, also at the same address. */
static void canaries_differ(void) {
  enum { BLOCKS = 400 };
  static char *blocks[BLOCKS];
  int result[2];
  CHECK(pipe(result) == 0);
  pid_t child = test_fork();
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = t_malloc(1000);
  if (child == 0) {
    for (int i = 0; i < BLOCKS; i++) {
      uint64_t pair[2] = {(uintptr_t)blocks[i], canary_behind(blocks[i], 1000)};
      CHECK(write(result[1], pair, sizeof pair) == (ssize_t)sizeof pair);
    }
    _exit(0);
  }
  close(result[1]);
  unsigned same_place = 0;
  for (uint64_t pair[2]; read(result[0], pair, sizeof pair) == (ssize_t)sizeof pair;)
    for (int i = 0; i < BLOCKS; i++) {
      CHECK(i == 0 || canary_behind(blocks[i], 1000) != canary_behind(blocks[i - 1], 1000));
      if ((uintptr_t)blocks[i] != pair[0])
        continue;
      same_place++;
      CHECK(canary_behind(blocks[i], 1000) != pair[1]);
    }
  close(result[0]);
  test_child_passes(child);
  CHECK_SAY(same_place > 0, "no address is in both processes");
  t_free_all(blocks, BLOCKS);
}

/* Two processes. Where the system lets them have the same addresses, blocks at the same one have different canaries. */
#define APART 400
static void canaries_write(int fd) {
  for (int i = 0; i < APART; i++) {
    char *block = t_malloc(1000);
    uint64_t pair[2] = {(uintptr_t)block, canary_behind(block, 1000)};
    CHECK(write(fd, pair, sizeof pair) == (ssize_t)sizeof pair);
  }
}

static void canaries_of_processes(void) {
  static uint64_t pairs[2][APART][2];
  for (int i = 0; i < 2; i++) {
    int result[2];
    CHECK(pipe(result) == 0);
    pid_t child = test_fork();
    if (child == 0) {
      dup2(result[1], 1);
      personality(ADDR_NO_RANDOMIZE);
      execl("/proc/self/exe", "secure", "write", (char *)NULL);
      _exit(1);
    }
    close(result[1]);
    CHECK(test_read(result[0], pairs[i], sizeof pairs[i]) == sizeof pairs[i]);
    close(result[0]);
    test_child_passes(child);
  }
  unsigned same_place = 0;
  for (int i = 0; i < APART; i++)
    for (int k = 0; k < APART; k++)
      if (pairs[0][i][0] == pairs[1][k][0]) {
        same_place++;
        CHECK_SAY(pairs[0][i][1] != pairs[1][k][1], "two processes have the canary 0x%jx", (uintmax_t)pairs[0][i][1]);
      }
  if (same_place == 0)
    puts("secure: no address is in both processes, so their canaries were not compared");
}

/* Blocks of before a fork are freed in the child of a child, where the secret is another one. */
static void forks_go_on(int depth) {
  enum { BLOCKS = 100 };
  char *blocks[BLOCKS];
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = t_malloc((size_t)i * 100 + 1);
  TEST_IN_CHILD {
    if (depth > 0)
      forks_go_on(depth - 1);
    t_free_all(blocks, BLOCKS);
  }
  t_free_all(blocks, BLOCKS);
}

/* --- packed blocks --- */

#define LIMIT_BYTES ((size_t)96 << 20)
#define PACKED_BYTES ((size_t)100000)

static void write_beyond(char *block) {
  block[PACKED_BYTES] ^= 1;
  t_free(test_opaque(block));
}

static void free_twice(char *block) {
  t_free(test_opaque(block));
  t_free(test_opaque(block));
}

/* The next block of this length lies in the shortest run that is long enough, which is this one. */
static void write_after_free(char *block) {
  t_free(test_opaque(block));
  *(char *)test_opaque(block + 50) = 1;
  for (int i = 0; i < 100; i++)
    *(char *)test_opaque(t_malloc(PACKED_BYTES)) = 1;
}

static void ends_by(int wanted, void (*crime)(char *), char *block) {
  int status;
  pid_t child = test_fork();
  if (child == 0) {
    close(2);
    crime(block);
    _exit(0);
  }
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_SAY(WIFSIGNALED(status) && WTERMSIG(status) == wanted, "status 0x%x, not signal %d", status, wanted);
}

/* Options and limits are read when a program starts. */
static void packed_blocks_are_checked(char **argv) {
  struct rlimit limit = {LIMIT_BYTES, LIMIT_BYTES};
  if (getenv("TEST_LIMITED") == NULL) {
    CHECK(setrlimit(RLIMIT_DATA, &limit) == 0 && setenv("TEST_LIMITED", "1", 1) == 0);
    execv("/proc/self/exe", argv);
    CHECK(!"execv");
  }
  char *block = NULL;
  for (size_t held = 0; held < LIMIT_BYTES / 4; held += PACKED_BYTES) {
    block = CHECK_GOT(t_malloc(PACKED_BYTES));
    shows_nothing((unsigned char *)block, PACKED_BYTES);
    memset(block, FILL, PACKED_BYTES);
  }
  CHECK(t_usable_size(block) == PACKED_BYTES);
  ends_by(SIGABRT, write_beyond, block);
  ends_by(SIGABRT, free_twice, block);
  ends_by(SIGABRT, write_after_free, block);
  block = t_realloc(block, 100);
  CHECK(block != NULL && t_usable_size(block) == 100);
  block = CHECK_GOT(t_realloc(block, PACKED_BYTES));
  shows_nothing((unsigned char *)block + 100, PACKED_BYTES - 100);
  t_free(block);
}

/* --- long blocks --- */

#define LONG_BYTES ((size_t)40000)
#define LONG_FIRST 32

static size_t long_bytes = LONG_BYTES;

static void read_beyond(char *block) {
  uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE);
  (void)*(volatile char *)(((uintptr_t)block + long_bytes + page - 1) / page * page);
}

static void read_after_free(char *block) {
  t_free(test_opaque(block));
  (void)*(volatile char *)test_opaque(block);
}

static void write_one_beyond(char *block) {
  block[long_bytes] ^= 1;
  t_free(test_opaque(block));
}

/* In its place a block shrinks and grows as far as its last page goes, and shows nothing of before. */
static void long_block_resized(unsigned char *block) {
  memset(block, FILL, LONG_BYTES);
  unsigned char *shorter = t_realloc(block, LONG_BYTES - 100);
  CHECK(shorter != NULL && t_usable_size(shorter) == LONG_BYTES - 100);
  unsigned char *longer = t_realloc(shorter, LONG_BYTES + 200);
  CHECK(longer != NULL && t_usable_size(longer) == LONG_BYTES + 200 && longer[LONG_BYTES - 101] == FILL);
  shows_nothing(longer + LONG_BYTES - 100, 300);
  t_free(longer);
}

/* A class of which many are asked for is served by slabs, where they lie side by side. */
static void first_long_blocks_lie_apart(void) {
  enum { MORE = 40 };
  static char *blocks[MORE];
  for (int i = 0; i < LONG_FIRST; i++) {
    char *block = CHECK_GOT(t_malloc(LONG_BYTES));
    shows_nothing((unsigned char *)block, LONG_BYTES);
    if (i < 3) {
      ends_by(SIGSEGV, read_beyond, block);
      ends_by(SIGSEGV, read_after_free, block);
      ends_by(SIGABRT, write_one_beyond, block);
      ends_by(SIGABRT, free_twice, block);
    }
    if (i == 3)
      long_block_resized((unsigned char *)block);
    else
      t_free(block);
  }
  unsigned near = 0;
  for (int i = 0; i < MORE; i++) {
    blocks[i] = t_malloc(LONG_BYTES);
    for (int k = 0; k < i; k++)
      near += (uintptr_t)(blocks[i] - blocks[k] + 2 * LONG_BYTES) <= 4 * LONG_BYTES;
  }
  CHECK_SAY(near > MORE / 2, "%u pairs are near", near);
}

/* One that grows in small steps is seldom copied, and what is behind it has no access at any time, also when it
 * shrank. Grown again, it shows nothing of before. */
static void long_block_grows(void) {
  enum { STEP = 65536 - 100, STEPS = 500, MOVES_MAX = 50 };
  unsigned moves = 0;
  char *block = CHECK_GOT(t_malloc(long_bytes = STEP));
  for (int i = 1; i <= STEPS; i++) {
    memset(block + long_bytes - STEP, i, STEP);
    char *longer = CHECK_GOT(t_realloc(block, long_bytes + STEP));
    moves += longer != block;
    block = longer;
    shows_nothing((unsigned char *)block + long_bytes, STEP);
    long_bytes += STEP;
    CHECK(t_usable_size(block) == long_bytes);
    for (int k = 1; k <= i; k++)
      CHECK(block[(size_t)(k - 1) * STEP] == (char)k && block[(size_t)k * STEP - 1] == (char)k);
    if (i % 100 != 0)
      continue;
    ends_by(SIGSEGV, read_beyond, block);
    ends_by(SIGSEGV, read_after_free, block);
    ends_by(SIGABRT, write_one_beyond, block);
  }
  CHECK_SAY(moves <= MOVES_MAX, "it moved %u times", moves);
  size_t full = long_bytes, shorter = full / 10 * 6, longer = full / 10 * 9;
  block = CHECK_GOT(t_realloc(block, long_bytes = shorter));
  ends_by(SIGSEGV, read_beyond, block);
  ends_by(SIGABRT, write_one_beyond, block);
  block = CHECK_GOT(t_realloc(block, long_bytes = longer));
  shows_nothing((unsigned char *)block + shorter, longer - shorter);
  ends_by(SIGSEGV, read_beyond, block);
  CHECK(block[0] == 1);
  t_free(block);
}

/* The kernel reads what a pipe gets. */
static bool has_access(const char *address, const int *ends) {
  char byte;
  return write(ends[1], address, 1) == 1 && read(ends[0], &byte, 1) == 1;
}

static size_t page_bytes(void) { return (size_t)sysconf(_SC_PAGESIZE); }
static size_t pages_of(size_t size) { return (size + page_bytes() - 1) / page_bytes(); }

static size_t pages_with_access(const char *block, size_t size, const int *ends) {
  size_t found = 0;
  for (size_t i = 0; i < size; i += page_bytes())
    found += has_access(block + i, ends);
  return found;
}

/* Of a large object, which begins a page. */
static size_t resident_pages(char *block, size_t size) {
  unsigned char pages[256];
  size_t found = 0;
  CHECK(pages_of(size) <= sizeof pages && mincore(block, size, pages) == 0);
  for (size_t i = 0; i < pages_of(size); i++)
    found += pages[i] & 1;
  return found;
}

/* Large objects of a few lengths that come and go, written whole or hardly: what was freed has no access until 32
 * others were freed, and what comes shows nothing. The pages that stay for the next ones go back by a trim. */
static void long_blocks_wait(void) {
  enum { WAITS = 32, ROUNDS = 600, LENGTHS = 5 };
  static const size_t lengths[LENGTHS] = {70000, 66000, 130000, 250000, 700000};
  static struct {
    char *block;
    size_t size;
  } freed[WAITS];
  int ends[2];
  CHECK(pipe(ends) == 0);
  for (unsigned round = 0; round < ROUNDS; round++) {
    size_t size = lengths[test_random(&test_seed) % (round < ROUNDS / 2 ? 2 : LENGTHS)];
    char *block = CHECK_GOT(t_malloc(size));
    shows_nothing((unsigned char *)block, size);
    memset(block, FILL, round % 5 == 4 ? 100 : size);
    if (round >= WAITS && round % 20 == 0)
      for (unsigned i = 0; i < WAITS; i++)
        CHECK(pages_with_access(freed[i].block, freed[i].size, ends) == 0);
    for (unsigned i = 0; i < WAITS; i++)
      CHECK(freed[i].block != block);
    CHECK(pages_with_access(block, size, ends) == pages_of(size));
    t_free(block);
    CHECK(pages_with_access(block, size, ends) == 0);
    freed[round % WAITS].block = block;
    freed[round % WAITS].size = size;
    if (round == WAITS + 1) { /* a short one, written whole: its pages stay */
      CHECK(resident_pages(block, size) == pages_of(size));
      t_trim(0);
      CHECK(resident_pages(block, size) == 0);
    }
  }
  close(ends[0]);
  close(ends[1]);
}

static void never_stale_anywhere(void) {
  never_stale(NULL);
  in_threads();
  TEST_IN_CHILD { never_stale((void *)9); }
}

int main(int argc, char **argv) {
  test_skip_if(!getenv("TEST_EXPECT_HAKMEM"), "another allocator promises none of this");
  test_begin(argc, argv);
  const char *what = argc > 1 ? argv[1] : "";
  if (strcmp(what, "wait") == 0) {
    freed_blocks_wait();
  } else if (strcmp(what, "callocs") == 0) {
    callocs_are_zero();
  } else if (strcmp(what, "long") == 0) {
    long_ones_show_nothing();
  } else if (strcmp(what, "places") == 0) {
    places_are_uniform();
  } else if (strcmp(what, "lanes") == 0) {
    threads_share_no_slab();
  } else if (strcmp(what, "apart") == 0) {
    first_long_blocks_lie_apart();
    long_block_grows();
    long_blocks_wait();
  } else if (strcmp(what, "packed") == 0) {
    packed_blocks_are_checked(argv);
  } else if (strcmp(what, "canaries") == 0) {
    canaries_differ();
    canaries_of_processes();
    forks_go_on(10);
  } else if (strcmp(what, "write") == 0) {
    canaries_write(1);
    return 0;
  } else {
    never_stale_anywhere();
  }
}
