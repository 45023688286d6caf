/* mallinfo2 is hak_stats_get under other names, exactly, when nothing moves; its numbers move with what is allocated.
 * malloc_stats says something. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
#include "../child.h"
#include "../reclaim/again.h"

#define LARGE_BYTES ((size_t)64 << 10) /* longer blocks are large objects */

static void say(void *unused) { malloc_stats(); }

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "off");
#if !defined(__GLIBC__) || !__GLIBC_PREREQ(2, 33)
  test_skip("no mallinfo2 in this libc");
#else
  static void *blocks[5000];
  static size_t sizes[5000];
  char said[8192];
  size_t asked = 0, large = 0;
  uint64_t seed = test_seed;
  struct mallinfo2 before = mallinfo2();
  for (int round = 0; round < 20; round++) {
    for (int i = 0; i < 5000; i++)
      if (test_random(&seed) % 2) {
        free(blocks[i]);
        asked -= sizes[i];
        large -= sizes[i] > LARGE_BYTES;
        sizes[i] = test_random(&seed) % 2 ? 1 + test_random(&seed) % (i % 100 ? 3000 : 3000000) : 0;
        blocks[i] = sizes[i] ? CHECK_GOT(malloc(sizes[i])) : NULL;
        asked += sizes[i];
        large += sizes[i] > LARGE_BYTES;
      }
    struct hak_stats s;
    TEST_HAK(hak_stats_get)(&s);
    struct mallinfo2 m = mallinfo2();
    struct mallinfo narrow = mallinfo();
    CHECK(m.arena == s.heap_bytes - s.large_bytes + s.extent_free_bytes);
    CHECK(m.uordblks == s.live_bytes - s.large_bytes);
    CHECK(m.fordblks == m.arena - m.uordblks);
    CHECK(m.fsmblks == s.bin_bytes);
    CHECK(m.hblks == s.large_count && m.hblkhd == s.large_bytes);
    CHECK(m.keepcost == s.extent_free_bytes + s.large_cached_bytes);
    CHECK(m.ordblks == 0 && m.smblks == 0 && m.usmblks == 0);
    CHECK((size_t)narrow.arena == m.arena && (size_t)narrow.uordblks == m.uordblks);
    CHECK((size_t)narrow.hblks == m.hblks && (size_t)narrow.hblkhd == m.hblkhd);
    size_t used = m.uordblks + m.hblkhd - before.uordblks - before.hblkhd;
    CHECK_SAY(used >= asked && used <= asked / 10 * 13, "%zu bytes in use for %zu", used, asked);
    CHECK_SAY(m.hblks == before.hblks + large, "%zu large objects for %zu", m.hblks - before.hblks, large);
    /* The classes are the slabs. */
    struct hak_class_stats classes[HAK_STATS_CLASSES];
    size_t count = TEST_HAK(hak_stats_classes_get)(classes, HAK_STATS_CLASSES);
    uint64_t slabs = 0, taken = 0, bins = 0;
    for (size_t i = 0; i < count; i++) {
      CHECK(i == 0 || classes[i].block_bytes > classes[i - 1].block_bytes);
      CHECK(classes[i].taken_bytes <= classes[i].slab_bytes && classes[i].bin_bytes <= classes[i].taken_bytes);
      slabs += classes[i].slab_bytes;
      taken += classes[i].taken_bytes;
      bins += classes[i].bin_bytes;
    }
    CHECK(slabs == s.heap_bytes - s.large_bytes && slabs - taken == s.slab_free_bytes && bins == s.bin_bytes);
    CHECK(TEST_HAK(hak_stats_classes_get)(classes, 2) == 2);
  }
  struct hak_process_stats process;
  TEST_HAK(hak_process_stats_get)(&process);
  CHECK(process.rss_bytes > 0 && process.rss_bytes <= process.rss_peak_bytes + (1 << 20));
  CHECK(process.mapping_count > 5 && process.faults_minor > 0);
  CHECK(mallopt(M_MMAP_THRESHOLD, 1 << 20) == 0 || mallopt(M_MMAP_THRESHOLD, 1 << 20) == 1);
  CHECK(test_child_says(say, NULL, said, sizeof said) == 0 && strlen(said) > 20);
#endif
}
