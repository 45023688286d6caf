/* hakmem-stats: converts a report of hakmem's counters; prints the pages that describe them. */
#include "tools/stats_read.h"
#include "tools/tool.h"

#include <stdio.h>
#include <string.h>

static const char usage[] =
    "hakmem-stats [--text|--json|--openmetrics] FILE\n"
    "hakmem-stats --markdown|--schema\n"
    "\n"
    "Prints the last report in FILE, which HAKMEM_STATS=json wrote, in another form; - is the standard input.\n"
    "  --text         for people (default)\n"
    "  --json         one object, by docs/stats.schema.json\n"
    "  --openmetrics  for Prometheus and its like\n"
    "  --markdown     prints docs/stats.md\n"
    "  --schema       prints docs/stats.schema.json\n";

/* --- the pages --- */

static const char *const group_heads[STATS_GROUPS] = {
    [STATS_PART] = "The parts of memory\n\nThey add up to `mapped_bytes`, to within `moving_bytes`. That is 0 when no "
                   "memory is in transfer.",
    [STATS_MEMORY] = "Other views of memory",
    [STATS_HEAP] = "Heaps\n\nA heap is the state that one thread allocates from. It outlives the thread.",
    [STATS_REFILL] =
        "Refills\n\nA malloc that finds its bin empty tries these sources in order: the pool's inbox, its slabs, "
        "above\n1152 bytes the slabs of up to four other pools, a new slab made of a free extent, an arena.",
    [STATS_FREE] = "Frees\n\nWhat free does when it does not push the block into a bin.",
    [STATS_LARGE] = "Large objects\n\nObjects above 64 KiB, and those aligned to more than a size class can be.",
    [STATS_COUNTED] = "Counted and sampled\n\nBlocks are counted with `HAKMEM_COUNT=1`, and while a heap profile "
                      "samples them\n([profiling.md](profiling.md)).",
    [STATS_EARLY] = "Rare cases",
    [STATS_PURGE] = "Giving back",
    [STATS_SYSTEM] = "System calls\n\nhakmem's own calls. Earlier reports call `calls_map` mmap_total.",
    [STATS_POLICY] = "The policy engine\n\n[policy.md](policy.md) describes it.",
};

static const char before_tables[] =
    "# Counters\n"
    "\n"
    "Made from the table in `include/hakmem/stats.h` by `hakmem-stats --markdown`.\n"
    "\n"
    "| to get them | do |\n"
    "|---|---|\n"
    "| a few lines for people, when the program ends | `HAKMEM_STATS=text` |\n"
    "| all, as one JSON object on one line | `HAKMEM_STATS=json`; [stats.schema.json](stats.schema.json) describes it "
    "|\n"
    "| all, as OpenMetrics text | `HAKMEM_STATS=openmetrics` |\n"
    "| in a file, for Prometheus' textfile collector | `HAKMEM_STATS_FILE=/var/lib/node_exporter/hakmem.%p.prom`: "
    "written when the program ends, then renamed into place; `%p` stands for the process id, children write too |\n"
    "| in the program | `hak_stats_get`, `hak_process_stats_get`, `hak_stats_classes_get` of `hakmem/hakmem.h` |\n"
    "| by glibc's names | `malloc_info(0, file)`: all; `malloc_stats()`: as text on stderr; `mallinfo2()`: see below "
    "|\n"
    "| from one form into another | `hakmem-stats --openmetrics FILE`, where FILE has the JSON |\n"
    "\n"
    "In OpenMetrics a name begins with `hakmem_`, a counter's name ends with `_total`, and the label `pid` tells\n"
    "processes apart. The number `schema` in the JSON grows when a name disappears or changes its meaning. Names may\n"
    "be added without.\n"
    "\n"
    "The fast path of malloc and free counts nothing, so blocks that bins serve or take do not appear in the\n"
    "counters. Each heap counts for itself. A snapshot adds the heaps up while the program runs: each number is right\n"
    "at some moment of the call.\n";

static const char after_tables[] =
    "\n"
    "## mallinfo2\n"
    "\n"
    "| field | is |\n"
    "|---|---|\n"
    "| `arena` | `heap_bytes` - `large_bytes` + `extent_free_bytes` |\n"
    "| `uordblks` | `live_bytes` - `large_bytes` |\n"
    "| `fordblks` | `arena` - `uordblks` |\n"
    "| `fsmblks` | `bin_bytes` |\n"
    "| `hblks`, `hblkhd` | `large_count`, `large_bytes` |\n"
    "| `keepcost` | `extent_free_bytes` + `large_cached_bytes` |\n"
    "\n"
    "`mallinfo` has the same fields as ints; a value that does not fit is INT_MAX. The other fields are 0.\n";

static void print_table(const struct stats_field *fields, size_t count, enum stats_group group) {
  printf("\n| name | kind | unit | what it says |\n|---|---|---|---|\n");
  for (size_t i = 0; i < count; i++)
    if (fields[i].group == group)
      printf("| `%s` | %s | %s | %s |\n", fields[i].name, fields[i].kind == STATS_COUNTER ? "counter" : "gauge",
             fields[i].unit, fields[i].sentence);
}

static void page_print(void) {
  fputs(before_tables, stdout);
  for (unsigned group = 0; group < STATS_GROUPS; group++) {
    printf("\n## %s\n", group_heads[group]);
    print_table(stats_fields, stats_field_count, (enum stats_group)group);
  }
  printf("\n## The process as the kernel sees it\n\nThese figures are of the whole program, not of hakmem alone: "
         "`hak_process_stats_get`.\n");
  print_table(stats_process_fields, stats_process_field_count, STATS_PROCESS);
  printf("\n## Size classes\n\nOne row for each class that has slabs: `hak_stats_classes_get`, `classes` in the JSON,\n"
         "`hakmem_class_...{block_bytes=\"...\"}` in OpenMetrics. `slab_bytes` - `taken_bytes` is a class's "
         "fragmentation.\n");
  print_table(stats_class_fields, stats_class_field_count, STATS_CLASS);
  fputs(after_tables, stdout);
}

static void print_properties(const char *margin, const struct stats_field *fields, size_t count) {
  for (size_t i = 0; i < count; i++)
    printf(",\n%s\"%s\": {\"type\": \"integer\", \"minimum\": 0, \"description\": \"%s\", \"x-kind\": \"%s\", "
           "\"x-unit\": \"%s\"}",
           margin, fields[i].name, fields[i].sentence, fields[i].kind == STATS_COUNTER ? "counter" : "gauge",
           fields[i].unit);
}

static void print_names(const struct stats_field *fields, size_t count, const char *first) {
  for (size_t i = 0; i < count; i++)
    printf("%s\"%s\"", i ? ", " : first, fields[i].name);
}

static void schema_print(void) {
  printf("{\n  \"$schema\": \"https://json-schema.org/draft/2020-12/schema\",\n"
         "  \"title\": \"What HAKMEM_STATS=json prints when a program ends\",\n"
         "  \"type\": \"object\",\n  \"properties\": {\n"
         "    \"hakmem\": {\"type\": \"string\", \"pattern\": \"^hakmem [0-9]+\\\\.[0-9]+\\\\.[0-9]+ \"},\n"
         "    \"schema\": {\"const\": %u},\n    \"pid\": {\"type\": \"integer\", \"minimum\": 1}",
         STATS_SCHEMA);
  print_properties("    ", stats_process_fields, stats_process_field_count);
  print_properties("    ", stats_fields, stats_field_count);
  printf(",\n    \"classes\": {\n      \"type\": \"array\",\n      \"maxItems\": %d,\n      \"items\": {\n"
         "        \"type\": \"object\",\n        \"properties\": {\n"
         "          \"%s\": {\"type\": \"integer\", \"minimum\": 16, \"description\": \"%s\"}",
         HAK_STATS_CLASSES, stats_class_fields[0].name, stats_class_fields[0].sentence);
  print_properties("          ", stats_class_fields + 1, stats_class_field_count - 1);
  printf("\n        },\n        \"required\": [");
  print_names(stats_class_fields, stats_class_field_count, "");
  printf("]\n      }\n    }\n  },\n  \"required\": [\"hakmem\", \"schema\", \"pid\"");
  print_names(stats_process_fields, stats_process_field_count, ", ");
  print_names(stats_fields, stats_field_count, ", ");
  printf(", \"classes\"]\n}\n");
}

/* --- a report --- */

static void convert_report(const char *path, enum stats_mode mode) {
  static struct stats_snapshot snapshot;
  static char bytes[STATS_FORMAT_BYTES_MAX];
  char problem[STATS_READ_SENTENCE];
  static char report[STATS_FORMAT_BYTES_MAX];
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (file == NULL)
    tool_fail(2, "%s: %m", path);
  stats_find(file, report, sizeof report);
  if (ferror(file))
    tool_fail(2, "%s: %m", path);
  if (!stats_read(report, &snapshot, problem))
    tool_fail(2, "%s: %s", path, problem);
  struct text text = TEXT_IN(bytes);
  stats_format(&text, mode, &snapshot);
  fwrite(text.bytes, 1, text.length, stdout);
  if (file != stdin)
    fclose(file);
}

int main(int count, char **arguments) {
  const char *path;
  bool is_text = false, is_json = false, is_metrics = false, is_page = false, is_schema = false;
  const struct tool_option options[] = {
      {"--text", &is_text, NULL},     {"--json", &is_json, NULL},     {"--openmetrics", &is_metrics, NULL},
      {"--markdown", &is_page, NULL}, {"--schema", &is_schema, NULL}, {NULL, NULL, NULL},
  };
  tool_begin("hakmem-stats", usage, count, arguments);
  int given = tool_words(arguments, options, &path, 1);
  if (is_text + is_json + is_metrics + is_page + is_schema > 1 || given != !(is_page || is_schema))
    tool_refuse("takes one form and one FILE, --markdown or --schema");
  if (is_page)
    page_print();
  else if (is_schema)
    schema_print();
  else
    convert_report(path, is_json ? STATS_JSON : is_metrics ? STATS_OPENMETRICS : STATS_TEXT);
  return tool_end(0);
}
