/* vmas: a big virtual heap, sizes from 16 bytes to 8 MiB, as many in each doubling, hardly any of it written; blocks
 * picked at random are replaced, and the mappings of the process are counted as it goes. An allocator that maps,
 * unmaps, advises or protects in small pieces has many, and at 65,530 the kernel gives no more. */
#include "bench.h"

#include <fcntl.h>
#include <math.h>
#include <stdlib.h>
#include <unistd.h>

enum { SIZE_MIN = 16, SAMPLES = 64, SMALL = 4096 };
static const double doublings = 19; /* 16 bytes to 8 MiB */

struct item {
  unsigned char *block;
  uint64_t size;
};

static uint64_t mapping_count(void) {
  static char text[1 << 16];
  int fd = open("/proc/self/maps", O_RDONLY | O_CLOEXEC);
  if (fd < 0)
    bench_die("no /proc/self/maps");
  uint64_t lines = 0;
  for (ssize_t length; (length = read(fd, text, sizeof text)) > 0;)
    for (ssize_t i = 0; i < length; i++)
      lines += text[i] == '\n';
  close(fd);
  return lines;
}

int main(int argc, char **argv) {
  enum { VIRTUAL_MIB, OPS, SEED, RSS_MAX_MIB, PARAMS };
  struct bench_param params[PARAMS] = {
      {"VIRTUAL_MIB", 20480, 16, 1 << 24, "live MiB, hardly touched"},
      {"OPS", 500000, 1, 1000000000000, "replacements, each a free and a malloc"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
      {"RSS_MAX_MIB", 4096, 1, 1 << 24, "gives up when more than this is resident, MiB"},
  };
  struct bench bench = {.name = "vmas",
                        .about = "Random replacement in a big virtual heap; counts the mappings of the process.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const double mean = SIZE_MIN * (exp2(doublings) - 1) / (doublings * log(2));
  const uint64_t live = (uint64_t)((double)(params[VIRTUAL_MIB].value << 20) / mean) + 1, ops = params[OPS].value;
  struct item *items = bench_table(&bench, live, sizeof *items);
  uint64_t random = bench_seed(params[SEED].value, 0), hash = 0, live_bytes = 0, most = 0,
           sample_every = ops / SAMPLES + 1;

  bench_start(&bench);
  for (uint64_t i = 0; i < live + ops; i++) {
    uint64_t r = bench_random(&random);
    struct item *item = i < live ? &items[i] : &items[bench_pick(r, live)];
    if (item->block) {
      hash = bench_mix(hash, item->block[0]);
      live_bytes -= item->size;
      free(item->block);
    }
    item->size = (uint64_t)(SIZE_MIN * exp2(doublings * (double)(uint32_t)r * 0x1p-32));
    item->block = bench_block(malloc(item->size));
    item->block[0] = (unsigned char)r;
    if (item->size <= SMALL)
      item->block[item->size - 1] = (unsigned char)r;
    live_bytes += item->size;
    if (i % sample_every == 0) {
      uint64_t now = mapping_count();
      most = now > most ? now : most;
      if (bench_status_kb("VmRSS:") >> 10 > params[RSS_MAX_MIB].value)
        bench_die("over %ju MiB resident after %ju blocks", (uintmax_t)params[RSS_MAX_MIB].value, (uintmax_t)i);
    }
  }
  bench_stop(&bench, live + ops);

  uint64_t now = mapping_count();
  bench_extra(&bench, "live_kb", (double)live_bytes / 1024);
  bench_extra(&bench, "vmas_end", (double)now);
  bench_extra(&bench, "vmas_most", (double)(now > most ? now : most));
  bench_extra(&bench, "virtual_kb", (double)bench_status_kb("VmSize:"));
  return bench_report(&bench, bench_mix(hash, live_bytes));
}
