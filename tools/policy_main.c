/* hakmem-policy: shows what hakmem has learned about a program's call sites, from a process or a file. */
#include "adapt/policy_state.h"
#include "adapt/strategy_words.h"
#include "inspect/file.h"
#include "tools/live_control.h"
#include "tools/policy_disk.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define WAIT_MS 3000u

static const char usage[] =
    "hakmem-policy show [--json] PID|FILE\n"
    "hakmem-policy fixed STRATEGY FILE\n"
    "\n"
    "show prints what was learned (HAKMEM_POLICY=evolving) of each call site and range of sizes: what is done with\n"
    "what it frees, the ratings, the cost in milliseconds by the engine's own reckoning, and the regret, which is\n"
    "that cost less that of the strategy that would have been best for this site.\n"
    "  PID      digits: a process that was started with HAKMEM_LIVE=1\n"
    "  FILE     what HAKMEM_POLICY_FILE wrote; ./123 is a file\n"
    "  --json   one object for programs\n"
    "fixed writes a FILE by which one strategy decides everywhere, with HAKMEM_POLICY=frozen.\n"
    "  STRATEGY at_once, 10ms, 100ms, 1s, 10s or warm: how long what is free stays resident\n"
    "Exit status: 2 if the process cannot be looked at, 1 if it has ended or FILE cannot be read or written.\n";

struct policy_view {
  void *bytes; /* from malloc, as the records */
  struct policy_file file;
  struct policy_record *records; /* the most costly first */
  struct policy_totals totals;
  bool is_process; /* else of a file */
};

/* --- a file, or the answer of a process, which is one --- */

/* Sorts by cost, highest first; further keys make the order independent of addresses. */
static int by_cost(const void *left, const void *right) {
  const struct policy_record *a = left, *b = right;
  if (a->total_acted != b->total_acted)
    return a->total_acted > b->total_acted ? -1 : 1;
  if (a->kind != b->kind)
    return a->kind < b->kind ? -1 : 1;
  if (a->site != b->site)
    return a->site < b->site ? -1 : 1;
  return a->range < b->range ? -1 : a->range > b->range;
}

static void take_records(struct policy_view *view) {
  uint32_t count = view->file.record_count;
  view->records = calloc(count + 1, sizeof *view->records);
  if (view->records == NULL)
    tool_fail(1, "no memory for %u records", count);
  for (uint32_t i = 0; i < count; i++) {
    struct policy_record record = view->records[i] = policy_file_record(&view->file, i);
    view->totals.arms += record.kind == POLICY_RECORD_SITE;
    if (record.kind != POLICY_RECORD_PRIOR)
      policy_totals_add(&view->totals, record.total, record.total_acted, record.epochs, record.switches);
  }
  qsort(view->records, count, sizeof *view->records, by_cost);
}

static void open_file(struct policy_view *view, const char *path) {
  const char *problem = policy_disk_read(path, &view->file, &view->bytes);
  if (problem)
    tool_fail(1, "%s: %s", path, problem);
}

static void ask_process(struct policy_view *view, long pid) {
  struct control control;
  size_t length;
  view->is_process = true;
  view->bytes = control_open(&control, pid, WAIT_MS) ? control_answer(&control, CONTROL_POLICY, &length) : NULL;
  if (view->bytes == NULL)
    tool_fail((int)control.live.problem, "%s", control.live.sentence);
  if (policy_file_open(&view->file, view->bytes, length) != POLICY_FILE_OK)
    tool_fail(LIVE_UNREADABLE, "process %ld: its hakmem is of another version", pid);
  control_close(&control);
}

/* --- names --- */

enum { SITE_BYTES = 64, SIZE_BYTES = 32, SITE_COLUMNS = 26 };

/* The text stays until the next call. NULL: it is not known. */
static const char *module_name(const struct policy_view *view, uint32_t tag) {
  static struct policy_module module;
  for (uint32_t i = 0; i < view->file.module_count; i++)
    if ((module = policy_file_module(&view->file, i)).tag == tag)
      return module.name;
  return NULL;
}

/* Writes the whole offset, for addr2line; a long name of a module is cut. */
static void site_text(const struct policy_view *view, const struct policy_record *record, char text[SITE_BYTES]) {
  uint32_t tag = policy_tag_of(record->site);
  uint64_t offset = policy_offset_of(record->site);
  if (record->kind == POLICY_RECORD_REST || tag == POLICY_TAG_SMALL) {
    snprintf(text, SITE_BYTES, record->kind == POLICY_RECORD_REST ? "all other sites" : "small blocks");
    return;
  }
  char at[32], unnamed[16];
  int length = snprintf(at, sizeof at, "+0x%lx", offset);
  snprintf(unnamed, sizeof unnamed, tag ? "0x%x" : "no module", tag);
  const char *name = module_name(view, tag);
  if (name == NULL)
    name = unnamed;
  int room = SITE_COLUMNS - length;
  bool is_cut = (int)strlen(name) > room;
  snprintf(text, SITE_BYTES, "%.*s%s%s", is_cut ? room - 2 : room, name, is_cut ? ".." : "", at);
}

static void size_text(unsigned range, char text[SIZE_BYTES]) {
  static const char *const units[] = {"B", "KiB", "MiB", "GiB", "TiB"};
  unsigned low = range + POLICY_RANGE_FIRST, unit = low / 10;
  uint64_t from = (uint64_t)1 << low % 10;
  if (range == 0)
    snprintf(text, SIZE_BYTES, "0-%u B", 2u << POLICY_RANGE_FIRST);
  else if (range == POLICY_RANGES - 1)
    snprintf(text, SIZE_BYTES, "from %lu %s", from, units[unit]);
  else
    snprintf(text, SIZE_BYTES, "%lu-%lu %s", from, 2 * from, units[unit]);
}
_Static_assert(POLICY_RANGE_FIRST + POLICY_RANGES <= 50, "units for all ranges");

static int rating_points(int32_t rating) {
  return (rating + (rating < 0 ? -POLICY_POINT / 2 : POLICY_POINT / 2)) / POLICY_POINT;
}

/* --- for people --- */

static double ms_of_ns(uint64_t ns) { return (double)ns / 1e6; }

static double percent_share(double part, uint64_t whole) { return whole ? 100 * part / (double)whole : 0; }

static void print_arm(const struct policy_view *view, const struct policy_record *record) {
  char site[SITE_BYTES], size[SIZE_BYTES];
  site_text(view, record, site);
  size_text(record->range, size);
  uint64_t best = record->total[policy_best_fixed(record->total)];
  double regret_ns = (double)record->total_acted - (double)best;
  printf("%-*s %-12s %-12s", SITE_COLUMNS, site, size, strategy_words[record->leader].action);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    printf("%5d", rating_points(record->rating[strategy]));
  printf(" %7u %5u %9.1f %8.1f %4.0f\n", record->epochs, record->switches, ms_of_ns(record->total_acted),
         regret_ns / 1e6, percent_share(regret_ns, best));
}

/* Tells whether to print a record. Rests of unused sizes have ratings too, if a file has them. */
static bool is_row(const struct policy_record *record) {
  return record->kind == POLICY_RECORD_SITE ||
         (record->kind == POLICY_RECORD_REST && record->total[KEEP_AT_ONCE] + record->total_acted > 0);
}

static void print_arms(const struct policy_view *view) {
  static const char *const short_names[KEEP_STRATEGIES] = {"once", "10ms", ".1s", "1s", "10s", "warm"};
  printf("%-*s %-12s %-12s   points of each strategy                   cost   regret    of\n", SITE_COLUMNS, "", "",
         "");
  printf("%-*s %-12s %-12s", SITE_COLUMNS, "site", "size", "given back");
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    printf("%5s", short_names[strategy]);
  printf(" %7s %5s %9s %8s %4s\n", "matches", "turns", "ms", "ms", "%");
  for (size_t i = 0; i < view->file.record_count; i++)
    if (is_row(&view->records[i]))
      print_arm(view, &view->records[i]);
}

/* Prints the leaders for sites without ratings of their own. Neighbouring ranges with the same leader share a line. */
static void print_priors(const struct policy_view *view) {
  const struct policy_record *of[POLICY_RANGES] = {NULL};
  for (size_t i = 0; i < view->file.record_count; i++)
    if (view->records[i].kind == POLICY_RECORD_PRIOR)
      of[view->records[i].range] = &view->records[i];
  const char *title = "\nsites that come begin with:\n";
  for (unsigned range = 0, last; range < POLICY_RANGES; range = last + 1) {
    last = range;
    if (of[range] == NULL)
      continue;
    while (last + 1 < POLICY_RANGES && of[last + 1] && of[last + 1]->leader == of[range]->leader)
      last++;
    char first_size[SIZE_BYTES], last_size[SIZE_BYTES];
    size_text(range, first_size);
    size_text(last, last_size);
    bool is_any = range == 0 && last == POLICY_RANGES - 1, is_span = last > range && !is_any;
    printf("%s  %s, %s%s%s\n", title, strategy_words[of[range]->leader].action,
           is_any ? "whatever their size" : first_size, is_span ? " to " : "", is_span ? last_size : "");
    title = "";
  }
}

static uint32_t break_even_ms(const struct policy_costs *costs) {
  if (costs->rent_64k == 0)
    return 0;
  return (uint32_t)((((uint64_t)costs->fault_ns << 16) + costs->rent_64k / 2) / costs->rent_64k);
}

static void print_totals(const struct policy_view *view) {
  const struct policy_totals *totals = &view->totals;
  const struct policy_costs *part = &view->file.costs.part, *mapping = &view->file.costs.mapping;
  unsigned best = policy_best_fixed(totals->fixed);
  double regret_ns = (double)totals->acted - (double)totals->best_of_arm;
  printf("\ncost %.1f ms; %s everywhere %.1f ms; the best for each arm %.1f ms, so a regret of %.1f ms, %.0f %%\n",
         ms_of_ns(totals->acted), strategy_words[best].action, ms_of_ns(totals->fixed[best]),
         ms_of_ns(totals->best_of_arm), regret_ns / 1e6, percent_share(regret_ns, totals->best_of_arm));
  printf("%zu arm%s; %lu matches, %lu turns\n", view->totals.arms, view->totals.arms == 1 ? "" : "s", totals->epochs,
         totals->switches);
  printf("a fault %u ns, a page given back %u ns, a call %u ns, with a mapping %u ns; as much as a fault: %u ms idle\n",
         part->fault_ns, part->purge_page_ns, part->purge_call_ns, mapping->purge_call_ns, break_even_ms(part));
}

static void view_print(const struct policy_view *view) {
  bool has_arms = view->totals.arms || view->totals.acted;
  if (has_arms)
    print_arms(view);
  else
    puts("no site has ratings of its own");
  print_priors(view);
  if (has_arms)
    print_totals(view);
  if (!view->is_process)
    printf("%swritten by %s; costs are those of the run that wrote it\n", has_arms ? "" : "\n", view->file.writer);
}

/* --- for programs --- */

static void print_costs(const uint64_t *fixed) {
  printf("\"fixed\":{");
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    printf("%s\"%s\":%lu", strategy ? "," : "", strategy_words[strategy].name, fixed[strategy]);
  putchar('}');
}

static void print_record(const struct policy_view *view, const struct policy_record *record) {
  uint32_t tag = policy_tag_of(record->site);
  unsigned low = record->range + POLICY_RANGE_FIRST;
  bool is_site = record->kind == POLICY_RECORD_SITE, is_small = is_site && tag == POLICY_TAG_SMALL;
  static const char *const kinds[POLICY_RECORD_KINDS] = {"site", "prior", "rest"};
  printf("{\"kind\":\"%s\"", is_small ? "small" : kinds[record->kind]);
  if (is_site && !is_small) {
    printf(",\"tag\":%u,\"module\":", tag);
    tool_print_json(module_name(view, tag));
    printf(",\"offset\":%lu", policy_offset_of(record->site));
  }
  printf(",\"bytes_min\":%lu,\"bytes_max\":", record->range ? (uint64_t)1 << low : 0);
  if (record->range == POLICY_RANGES - 1)
    fputs("null", stdout);
  else
    printf("%lu", ((uint64_t)2 << low) - 1);
  printf(",\"leader\":\"%s\",\"matches\":%u,\"switches\":%u,\"ratings\":{", strategy_words[record->leader].name,
         record->epochs, record->switches);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    printf("%s\"%s\":%.3f", strategy ? "," : "", strategy_words[strategy].name,
           (double)record->rating[strategy] / POLICY_POINT);
  putchar('}');
  if (record->kind != POLICY_RECORD_PRIOR) {
    printf(",\"acted\":%lu,", record->total_acted);
    print_costs(record->total);
    printf(",\"best_fixed\":\"%s\"", strategy_words[policy_best_fixed(record->total)].name);
  }
  putchar('}');
}

static void print_records(const struct policy_view *view, bool are_priors) {
  const char *separator = "";
  for (size_t i = 0; i < view->file.record_count; i++) {
    if ((view->records[i].kind == POLICY_RECORD_PRIOR) != are_priors)
      continue;
    fputs(separator, stdout);
    print_record(view, &view->records[i]);
    separator = ",";
  }
}

/* One object. arms, most costly first: kind "site" (tag and offset; module is null if its name is not known; tag 0: in
 * no module), "small" (slabs of small blocks) or "rest" (sites without a place); sizes from bytes_min to bytes_max;
 * ratings in points; times in nanoseconds. priors: what a site begins with, kind "prior". */
static void view_print_json(const struct policy_view *view) {
  const struct policy_totals *totals = &view->totals;
  const struct policy_costs *part = &view->file.costs.part;
  printf("{\"source\":\"%s\",\"writer\":", view->is_process ? "process" : "file");
  tool_print_json(view->is_process ? NULL : view->file.writer);
  printf(",\"costs\":{\"fault_ns\":%u,\"purge_page_ns\":%u,\"purge_call_ns\":%u,\"mapping_call_ns\":%u,\"break_even_"
         "ms\":%u}",
         part->fault_ns, part->purge_page_ns, part->purge_call_ns, view->file.costs.mapping.purge_call_ns,
         break_even_ms(part));
  fputs(",\"arms\":[", stdout);
  print_records(view, false);
  fputs("],\"priors\":[", stdout);
  print_records(view, true);
  printf("],\"totals\":{\"acted\":%lu,", totals->acted);
  print_costs(totals->fixed);
  printf(",\"best_fixed\":\"%s\",\"best_of_arm\":%lu,\"arms\":%zu,\"matches\":%lu,\"switches\":%lu}}\n",
         strategy_words[policy_best_fixed(totals->fixed)].name, totals->best_of_arm, view->totals.arms, totals->epochs,
         totals->switches);
}

/* --- the verbs --- */

static void show_policy(const char *name, bool is_json) {
  struct policy_view view = {.bytes = NULL};
  if (*name != 0 && name[strspn(name, "0123456789")] == 0)
    ask_process(&view, tool_pid(name));
  else
    open_file(&view, name);
  take_records(&view);
  if (is_json)
    view_print_json(&view);
  else
    view_print(&view);
  free(view.records);
  free(view.bytes);
}

/* What the file says about costs is not used when it is read. */
static void write_fixed(const char *strategy_name, const char *path) {
  unsigned strategy = 0;
  while (strategy < KEEP_STRATEGIES && strcmp(strategy_words[strategy].name, strategy_name) != 0)
    strategy++;
  if (strategy == KEEP_STRATEGIES)
    tool_fail(2, "unknown strategy '%s' (at_once, 10ms, 100ms, 1s, 10s or warm)", strategy_name);
  static const char writer_name[] = "hakmem-policy fixed";
  const char *problem = policy_disk_reason_to_keep(path, writer_name);
  if (problem)
    tool_fail(1, "%s: %s, so it is not overwritten", path, problem);
  static unsigned char bytes[16384];
  struct policy_file_writer writer;
  policy_file_begin(&writer, bytes, sizeof bytes, &(struct policy_table_costs){0}, writer_name);
  policy_file_add_fixed(&writer, (enum keep)strategy);
  size_t length = policy_file_end(&writer);
  enum os_file_error error = os_file_replace(path, bytes, length);
  if (error)
    tool_fail(1, "%s: %s", path, os_file_words(error));
}

int main(int count, char **arguments) {
  bool is_json = false;
  const char *words[3];
  const struct tool_option options[] = {{"--json", &is_json, NULL}, {NULL, NULL, NULL}};
  tool_begin("hakmem-policy", usage, count, arguments);
  int given = tool_words(arguments, options, words, 3);
  if (given == 2 && strcmp(words[0], "show") == 0)
    show_policy(words[1], is_json);
  else if (given == 3 && strcmp(words[0], "fixed") == 0 && !is_json)
    write_fixed(words[1], words[2]);
  else
    tool_refuse("takes show PID, show FILE or fixed STRATEGY FILE");
  return tool_end(0);
}
