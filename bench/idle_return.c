/* idle_return: a peak, then nothing. Blocks of 512, 1024 and 2048 bytes are allocated in random order and written; all
 * but one in KEEP are freed; then the program sleeps, and its resident memory is read 0.1, 1, 5 and 10 seconds
 * after the last free. Nothing calls the allocator meanwhile.
 *
 * releasable_kb is what could go back without moving a block: the OS pages that held a part of a freed block
 * and hold no part of a kept one, as the addresses say. It is the allocator's own: one that places the blocks
 * better has more of it. returned_of_dead is of all that is not live.
 */
#include "bench.h"

#include <stdlib.h>
#include <unistd.h>

enum { KINDS = 3, TIMES = 4 };
static const uint64_t kind_bytes[KINDS] = {512, 1024, 2048};
static const uint64_t times_ms[TIMES] = {100, 1000, 5000, 10000};

struct item {
  unsigned char *block;
  uint32_t size;
  bool kept;
};

/* A set of pages: open addressing, the lowest bit of an entry says that a kept block lies in the page. */
struct pages {
  uint64_t *slots, mask, page_bytes;
};

static void pages_add(const struct pages *pages, const struct item *item) {
  uint64_t first = (uintptr_t)item->block / pages->page_bytes;
  uint64_t last = ((uintptr_t)item->block + item->size - 1) / pages->page_bytes;
  for (uint64_t page = first; page <= last; page++) {
    uint64_t at = bench_mix(0, page) & pages->mask;
    while (pages->slots[at] && pages->slots[at] >> 1 != page)
      at = (at + 1) & pages->mask;
    pages->slots[at] |= page << 1 | item->kept;
  }
}

static uint64_t releasable_kb(const struct pages *pages, const struct item *items, uint64_t count) {
  uint64_t free_pages = 0;
  for (uint64_t i = 0; i < count; i++)
    pages_add(pages, &items[i]);
  for (uint64_t at = 0; at <= pages->mask; at++)
    free_pages += pages->slots[at] && !(pages->slots[at] & 1);
  return free_pages * pages->page_bytes / 1024;
}

int main(int argc, char **argv) {
  enum { COUNT_512, COUNT_1024, COUNT_2048, KEEP, SEED, HASTE, PARAMS };
  struct bench_param params[PARAMS] = {
      {"COUNT_512", 150000, 1, 1 << 28, "blocks of 512 bytes"},
      {"COUNT_1024", 100000, 1, 1 << 28, "blocks of 1024 bytes"},
      {"COUNT_2048", 50000, 1, 1 << 28, "blocks of 2048 bytes"},
      {"KEEP", 20, 2, 1 << 28, "one block in so many is kept"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"HASTE", 1, 1, 1000, "divides the times of the readings; the names of the fields hold for 1"},
  };
  struct bench bench = {.name = "idle_return",
                        .about = "Frees most of a peak, sleeps, and reads what is resident; a block counts one.",
                        .params = params,
                        .param_count = PARAMS,
                        .flag = "--regular",
                        .flag_text = "every KEEP-th block is kept, not one in KEEP at random"};
  bench_arguments(&bench, argc, argv);
  const uint64_t count = params[COUNT_512].value + params[COUNT_1024].value + params[COUNT_2048].value;
  const uint64_t keep = params[KEEP].value;
  struct item *items = bench_table(&bench, count, sizeof *items);
  struct pages pages = {.mask = 1, .page_bytes = (uint64_t)sysconf(_SC_PAGESIZE)};
  while (pages.mask < count * 4)
    pages.mask = pages.mask << 1 | 1;
  pages.slots = bench_table(&bench, pages.mask + 1, sizeof *pages.slots);
  uint64_t random = bench_seed(params[SEED].value, 0), hash = 0, live_bytes = 0;

  bench_start(&bench);
  uint64_t left[KINDS] = {params[COUNT_512].value, params[COUNT_1024].value, params[COUNT_2048].value};
  for (uint64_t i = 0; i < count; i++) {
    uint64_t r = bench_random(&random), pick = bench_pick(r, count - i);
    uint32_t kind = 0;
    for (; pick >= left[kind]; kind++)
      pick -= left[kind];
    left[kind]--;
    items[i].size = (uint32_t)kind_bytes[kind];
    items[i].kept = bench.flag_given ? i % keep == 0 : bench_pick_low(r, keep) == 0;
    items[i].block = bench_block(malloc(items[i].size));
    memset(items[i].block, (int)(r & 0xff), items[i].size);
    bench_mark(items[i].block, items[i].size, r);
    live_bytes += items[i].kept ? items[i].size : 0;
  }
  uint64_t rss_before_kb = bench_status_kb("VmRSS:") - bench.tables_kb;
  for (uint64_t i = 0; i < count; i++)
    if (!items[i].kept) {
      hash = bench_mix(hash, bench_marks(items[i].block, items[i].size));
      free(items[i].block);
    }
  uint64_t freed_ns = bench_clock_ns();
  bench_stop(&bench, count);

  uint64_t rss_kb[TIMES], cpu_ns = bench_cpu_ns();
  for (int t = 0; t < TIMES; t++) {
    uint64_t due_ns = freed_ns + times_ms[t] * 1000000 / params[HASTE].value, now_ns = bench_clock_ns();
    if (due_ns > now_ns)
      bench_sleep_ns(due_ns - now_ns);
    rss_kb[t] = bench_status_kb("VmRSS:") - bench.tables_kb;
  }
  cpu_ns = bench_cpu_ns() - cpu_ns;
  for (uint64_t i = 0; i < count; i++)
    if (items[i].kept)
      hash = bench_mix(hash, bench_marks(items[i].block, items[i].size));

  double could_kb = (double)releasable_kb(&pages, items, count), live_kb = (double)live_bytes / 1024;
  double returned_kb = (double)rss_before_kb - (double)rss_kb[TIMES - 1];
  bench_extra(&bench, "live_kb", live_kb);
  bench_extra(&bench, "releasable_kb", could_kb);
  bench_extra(&bench, "rss_before_kb", (double)rss_before_kb);
  bench_extra(&bench, "rss_0_1s_kb", (double)rss_kb[0]);
  bench_extra(&bench, "rss_1s_kb", (double)rss_kb[1]);
  bench_extra(&bench, "rss_5s_kb", (double)rss_kb[2]);
  bench_extra(&bench, "rss_10s_kb", (double)rss_kb[3]);
  bench_extra(&bench, "returned_share_10s", could_kb > 0 ? returned_kb / could_kb : 0);
  bench_extra(&bench, "returned_of_dead_10s", returned_kb / ((double)rss_before_kb - live_kb));
  bench_extra(&bench, "idle_cpu_ms", (double)cpu_ns / 1e6);
  return bench_report(&bench, hash);
}
