/* hakmem-stats: converts a report of hakmem's counters; prints the pages that describe them. */
#include "tools/stats_page.h"
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
    stats_page_print();
  else if (is_schema)
    stats_schema_print();
  else
    convert_report(path, is_json ? STATS_JSON : is_metrics ? STATS_OPENMETRICS : STATS_TEXT);
  return tool_end(0);
}
