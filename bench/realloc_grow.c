/* realloc_grow: one block grows from 64 KiB to MAX_MIB by realloc and shrinks back the same way, round after round.
 * Each page is written when it is new; all are read back at the end of the growth. What counts is whether a
 * block grows where it is, is moved by the kernel, or is copied. */
#include "bench.h"

#include <stdlib.h>

enum { START = 64 << 10, PAGE = 4096 };

static uint64_t page_word(uint64_t round, uint64_t page) { return (round + 1) * 0x9e3779b97f4a7c15ull ^ page; }

/* The words of the pages that begin in [from, to). */
static void write_pages(unsigned char *block, uint64_t from, uint64_t to, uint64_t round) {
  for (uint64_t at = (from + PAGE - 1) / PAGE * PAGE; at + sizeof(uint64_t) <= to; at += PAGE) {
    uint64_t word = page_word(round, at / PAGE);
    memcpy(block + at, &word, sizeof word);
  }
}

static void check_pages(const unsigned char *block, uint64_t size, uint64_t round) {
  for (uint64_t at = 0; at + sizeof(uint64_t) <= size; at += PAGE) {
    uint64_t word;
    memcpy(&word, block + at, sizeof word);
    if (word != page_word(round, at / PAGE))
      bench_die("realloc lost the content of page %ju in round %ju", (uintmax_t)(at / PAGE), (uintmax_t)round);
  }
}

struct rule {
  uint64_t percent, step, max;
};

static uint64_t bigger(const struct rule *rule, uint64_t size) {
  uint64_t more = rule->percent ? size / 100 * rule->percent + size % 100 * rule->percent / 100 : rule->step;
  return more < rule->max - size ? size + more : rule->max;
}

int main(int argc, char **argv) {
  enum { MAX_MIB, PERCENT, STEP_KIB, ROUNDS, PARAMS };
  struct bench_param params[PARAMS] = {
      {"MAX_MIB", 1024, 1, 1 << 20, "where the growth ends, MiB"},
      {"PERCENT", 100, 0, 10000, "growth of a step: 100 doubles, 50 is by half; 0: STEP_KIB"},
      {"STEP_KIB", 16384, 4, 1 << 30, "growth of a step where PERCENT is 0, KiB"},
      {"ROUNDS", 3, 1, 1000000, "rounds of growing and shrinking"},
  };
  struct bench bench = {.name = "realloc_grow",
                        .about = "Grows one block by realloc and shrinks it again; a realloc counts one.",
                        .params = params,
                        .param_count = PARAMS};
  bench_arguments(&bench, argc, argv);
  const struct rule rule = {params[PERCENT].value, params[STEP_KIB].value << 10, params[MAX_MIB].value << 20};
  const uint64_t rounds = params[ROUNDS].value;
  uint64_t steps_max = 2;
  for (uint64_t size = START; size < rule.max; size = bigger(&rule, size))
    steps_max++;
  uint64_t *sizes = bench_table(&bench, steps_max, sizeof *sizes);
  uint64_t steps = 0;
  for (uint64_t size = START; size < rule.max; size = bigger(&rule, size))
    sizes[steps++] = size;
  sizes[steps++] = rule.max;
  uint64_t moves = 0, grow_ns = 0, hash = 0;

  bench_start(&bench);
  for (uint64_t round = 0; round < rounds; round++) {
    uint64_t begin_ns = bench_clock_ns();
    unsigned char *block = bench_block(malloc(START));
    write_pages(block, 0, START, round);
    for (uint64_t step = 1; step < steps; step++) {
      uintptr_t before = (uintptr_t)block;
      block = bench_block(realloc(block, sizes[step]));
      moves += (uintptr_t)block != before;
      write_pages(block, sizes[step - 1], sizes[step], round);
    }
    grow_ns += bench_clock_ns() - begin_ns;
    check_pages(block, rule.max, round);
    hash = bench_mix(hash, bench_marks(block, PAGE));
    for (uint64_t step = steps - 1; step-- > 0;)
      block = bench_block(realloc(block, sizes[step]));
    check_pages(block, START, round);
    free(block);
  }
  bench_stop(&bench, rounds * (steps - 1) * 2);

  bench_extra(&bench, "grow_ms", (double)grow_ns / 1e6 / (double)rounds);
  bench_extra(&bench, "moves", (double)moves / (double)rounds);
  bench_extra(&bench, "peak_over_live",
              ((double)bench.rss_peak_kb - (double)bench.tables_kb) * 1024 / (double)rule.max);
  return bench_report(&bench, bench_mix(hash, steps));
}
