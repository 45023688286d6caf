/* prefork: a server with many small live blocks forks CHILDREN; each frees and allocates CHANGES blocks, then all wait
 * while the parent reads their memory. A child pays for every page that it or its allocator writes to: block
 * headers, free lists and metadata that lie apart from each other cost a page each.
 *
 * extra_pss_kb is what one more child costs the machine: the proportional set sizes of all processes less
 * the parent's before the forks, over the children. The time is that of the forks and of the children's work.
 */
#include "bench.h"

#include <stdio.h>
#include <stdlib.h>
#include <sys/wait.h>
#include <unistd.h>

enum { CHILDREN_MAX = 1024 };

/* The block of change i: a walk over the table that meets each block once, as the step is a prime that does not
 * divide the count (main sees to that). */
enum { STEP = 1000003 };

struct server {
  unsigned char **blocks;
  uint64_t count, size_min, span, changes, seed;
  uint64_t pause_ns;
};

/* What a child allocates stays live and is not written down: the table is left alone, as its pages would cost all
 * allocators the same. */
static uint64_t serve(const struct server *server, uint64_t number) {
  uint64_t random = bench_seed(server->seed, number + 1), hash = number;
  uint64_t at = bench_pick(bench_random(&random), server->count);
  for (uint64_t i = 0; i < server->changes; i++) {
    hash = bench_mix(hash, server->blocks[at][0]);
    free(server->blocks[at]);
    at = (at + STEP) % server->count;
    uint64_t r = bench_random(&random);
    size_t size = server->size_min + bench_pick_low(r, server->span);
    unsigned char *block = bench_block(malloc(size));
    bench_mark(block, size, r);
    hash = bench_mix(hash, bench_marks(block, size));
  }
  return hash;
}

static uint64_t smaps_kb(pid_t pid, const char *field) {
  char path[64];
  snprintf(path, sizeof path, "/proc/%d/smaps_rollup", (int)pid);
  uint64_t kb = bench_file_number(path, field);
  if (!kb)
    bench_die("no %s in %s", field, path);
  return kb;
}

static void read_hash(int fd, uint64_t *hash) {
  if (read(fd, hash, sizeof *hash) != (ssize_t)sizeof *hash)
    bench_die("a child ended early");
}

int main(int argc, char **argv) {
  enum { LIVE_MIB, MIN, MAX, CHILDREN, CHANGES, PAUSE_MS, SEED, PARAMS };
  struct bench_param params[PARAMS] = {
      {"LIVE_MIB", 100, 1, 65536, "live MiB of the parent"},
      {"MIN", 16, 1, 1 << 20, "smallest block, bytes"},
      {"MAX", 1024, 1, 1 << 20, "largest block, bytes"},
      {"CHILDREN", 32, 1, CHILDREN_MAX, "children"},
      {"CHANGES", 2000, 0, 1 << 20, "frees and mallocs of a child"},
      {"PAUSE_MS", 200, 0, 60000, "how long all are idle before their memory is read"},
      {"SEED", 1, 0, UINT64_MAX, "of the random numbers"},
  };
  struct bench bench = {.name = "prefork",
                        .about = "Forks children of a big heap and reads what each costs; a change counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const uint64_t children = params[CHILDREN].value;
  struct server server = {.size_min = params[MIN].value, .changes = params[CHANGES].value, .seed = params[SEED].value};
  server.span = params[MAX].value - server.size_min + 1;
  server.count = (params[LIVE_MIB].value << 20) / ((server.size_min + params[MAX].value) / 2 + 1) | 1;
  while (server.count % STEP == 0)
    server.count++;
  if (server.changes > server.count)
    bench_refuse(&bench, "CHANGES %ju is over the %ju blocks", (uintmax_t)server.changes, (uintmax_t)server.count);

  server.blocks = bench_table(&bench, server.count, sizeof *server.blocks);
  uint64_t random = bench_seed(server.seed, 0), hash = 0, live_bytes = 0;
  for (uint64_t i = 0; i < server.count; i++) {
    uint64_t r = bench_random(&random);
    size_t size = server.size_min + bench_pick_low(r, server.span);
    server.blocks[i] = bench_block(malloc(size));
    memset(server.blocks[i], (int)(r & 0xff), size);
    live_bytes += size;
  }

  /* A child writes its hash to `answers` when its work is done, and ends when `ending` is closed: by the parent, or
   * because there is no parent any more. */
  pid_t pids[CHILDREN_MAX];
  int answers[CHILDREN_MAX][2], ending[2];
  if (pipe(ending))
    bench_die("no pipe");
  uint64_t before_kb = smaps_kb(getpid(), "\nPss:"), rss_sum_kb = 0, pss_sum_kb = 0, private_sum_kb = 0;
  bench_start(&bench);
  for (uint64_t c = 0; c < children; c++) {
    if (pipe(answers[c]))
      bench_die("no pipe");
    pids[c] = fork();
    if (pids[c] < 0)
      bench_die("no child");
    if (!pids[c]) {
      uint64_t mine = serve(&server, c);
      char end;
      close(ending[1]);
      for (uint64_t i = 0; i <= c; i++)
        close(answers[i][0]);
      ssize_t done = write(answers[c][1], &mine, sizeof mine);
      done = read(ending[0], &end, 1);
      _exit(done == 0 ? 0 : 1);
    }
    close(answers[c][1]);
  }
  for (uint64_t c = 0; c < children; c++) {
    uint64_t childs;
    read_hash(answers[c][0], &childs);
    hash = bench_mix(hash, childs);
  }
  bench_stop(&bench, children * (server.changes ? server.changes : 1));

  bench_sleep_ns(params[PAUSE_MS].value * 1000000);
  for (uint64_t c = 0; c < children; c++) {
    rss_sum_kb += smaps_kb(pids[c], "\nRss:");
    pss_sum_kb += smaps_kb(pids[c], "\nPss:");
    private_sum_kb += smaps_kb(pids[c], "\nPrivate_Dirty:");
  }
  uint64_t parent_kb = smaps_kb(getpid(), "\nPss:");
  close(ending[1]);
  for (uint64_t c = 0; c < children; c++) {
    int status = 0;
    if (waitpid(pids[c], &status, 0) != pids[c] || !WIFEXITED(status) || WEXITSTATUS(status))
      bench_die("a child failed, wait status %d", status);
    close(answers[c][0]);
  }
  for (uint64_t i = 0; i < server.count; i++)
    hash = bench_mix(hash, server.blocks[i][0]);

  bench_extra(&bench, "live_kb", (double)live_bytes / 1024);
  bench_extra(&bench, "parent_pss_kb", (double)before_kb);
  bench_extra(&bench, "child_rss_kb", (double)rss_sum_kb / (double)children);
  bench_extra(&bench, "child_pss_kb", (double)pss_sum_kb / (double)children);
  bench_extra(&bench, "child_private_kb", (double)private_sum_kb / (double)children);
  bench_extra(&bench, "extra_pss_kb", ((double)pss_sum_kb + (double)parent_kb - (double)before_kb) / (double)children);
  return bench_report(&bench, hash);
}
