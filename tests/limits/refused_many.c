/* The kernel refuses to unmap a part of a mapping while the process has as many mappings as it may. Of many such ranges
 * a call tries a few again, and each has its turn: so the one goes that the kernel allows meanwhile. Once the kernel
 * allows all, a call unmaps a few. */
#include <errno.h>
#include <sys/mman.h>

#include "../reclaim/again.h"
#include "use_up.h"

#include <hakmem/stats.h>

#define BLOCKS 400
#define BLOCK_BYTES (40 * MIB) /* whole multiples of 2 MiB, so the kernel puts the mappings side by side */
#define TRIES_MAX 32
#define CALLS (BLOCKS / TRIES_MAX + 2)
#define GIVEN_BYTES ((size_t)2 * 4096) /* two mappings, which a third one in the middle of another takes */
#define PAUSE_MS 60                    /* between two calls that try: hakmem looks at HAKMEM_TARGET_MB every 50 ms */

static char *blocks[BLOCKS];
static void *pebbles[3 * CALLS]; /* whose frees are slow paths, and need no mapping */
static int pebble_count;

/* A block may begin some lines behind its mapping's begin. */
static char *begin_of(const char *block) { return (char *)((uintptr_t)block & ~(uintptr_t)0xffff); }

static long mapped_mib(void) { return test_status("VmSize:") / 1024; }

static uint64_t unmaps(void) {
  struct hak_stats stats;
  CHECK(TEST_HAK(hak_stats_get)(&stats) == 0);
  return stats.calls_unmap;
}

/* Some calls that try, each the free of a block. None may try more than a few ranges. */
static void calls_try(const char *when) {
  for (int i = 0; i < CALLS; i++) {
    test_pause_ms(PAUSE_MS);
    uint64_t before = unmaps();
    t_free(pebbles[--pebble_count]);
    CHECK_SAY(unmaps() - before <= TRIES_MAX, "%s: one call tries %lu", when, (unsigned long)(unmaps() - before));
  }
}

/* Sorts the blocks by address: a library's sort may allocate. */
static void sort_blocks(void) {
  for (int i = 1; i < BLOCKS; i++)
    for (int at = i; at > 0 && blocks[at] < blocks[at - 1]; at--) {
      char *other = blocks[at];
      blocks[at] = blocks[at - 1];
      blocks[at - 1] = other;
    }
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "off", "HAKMEM_LARGE_CACHE_MB", "0", "HAKMEM_TARGET_MB", "1000");
  test_skip_if(TEST_SANITIZED, "a sanitizer needs mappings of its own");
  for (; pebble_count < 3 * CALLS; pebble_count++)
    pebbles[pebble_count] = CHECK_GOT(t_malloc(MIB));
  for (int i = 0; i < BLOCKS; i++)
    blocks[i] = CHECK_GOT(t_malloc(BLOCK_BYTES - 20000));
  sort_blocks();
  for (int i = 0; i < 2; i++)
    test_skip_if(begin_of(blocks[i + 1]) - begin_of(blocks[i]) != (ptrdiff_t)BLOCK_BYTES,
                 "the kernel places mappings apart");
  char *range = use_up_mappings();
  long full_mib = mapped_mib();
  /* Each second one, so that each would leave a gap: the first one when half of the others wait before it. */
  for (int i = 3; i < BLOCKS - 1; i += 2) {
    t_free(blocks[i]);
    if (i == BLOCKS / 2 + 1)
      t_free(blocks[1]);
  }
  long waiting_mib = mapped_mib();
  test_skip_if(full_mib - waiting_mib > BLOCKS * 40 / 16, "the system unmaps parts of mappings");
  calls_try("all are refused");
  /* A live block becomes a mapping of its own for the kernel. So the range behind it is the begin of one. */
  CHECK(munmap(range, GIVEN_BYTES) == 0);
  CHECK(madvise(begin_of(blocks[0]), BLOCK_BYTES, MADV_DONTDUMP) == 0);
  unsigned char is_resident;
  CHECK(mincore(begin_of(blocks[1]), 1, &is_resident) == 0);
  calls_try("one may go");
  CHECK_SAY(mincore(begin_of(blocks[1]), 1, &is_resident) != 0 && errno == ENOMEM, "the range that may go stays");
  CHECK(munmap(range + GIVEN_BYTES, USED_UP_BYTES - GIVEN_BYTES) == 0);
  calls_try("all may go");
  long left_mib = mapped_mib() - (full_mib - (long)((USED_UP_BYTES + (BLOCKS / 2 - 1) * BLOCK_BYTES) / MIB));
  printf("refused_many: %ld MiB left\n", left_mib);
  CHECK_SAY(left_mib < 80, "%ld MiB left", left_mib);
}
