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

static int convert_report(const char *path, enum stats_mode mode) {
  static struct stats_snapshot snapshot;
  static char bytes[STATS_FORMAT_BYTES_MAX];
  char problem[STATS_READ_SENTENCE];
  static char report[STATS_FORMAT_BYTES_MAX];
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (file == NULL)
    return tool_complain(2, "%s: %m", path);
  stats_find(file, report, sizeof report);
  int status = 0;
  if (ferror(file)) {
    status = tool_complain(2, "%s: %m", path);
  } else if (stats_read(report, &snapshot, problem)) {
    struct text text = TEXT_IN(bytes);
    stats_format(&text, mode, &snapshot);
    fwrite(text.bytes, 1, text.length, stdout);
  } else {
    status = tool_complain(2, "%s: %s", path, problem);
  }
  if (file != stdin)
    fclose(file);
  return status;
}

int main(int count, char **arguments) {
  static const struct {
    const char *word;
    enum stats_mode mode;
  } forms[] = {{"--text", STATS_TEXT}, {"--json", STATS_JSON}, {"--openmetrics", STATS_OPENMETRICS}};
  enum stats_mode mode = STATS_TEXT;
  if (tool_begin("hakmem-stats", usage, count, arguments))
    return tool_end(0);
  int at = 1, status = 0;
  for (unsigned i = 0; i < sizeof forms / sizeof forms[0] && at == 1 && count == 3; i++)
    if (strcmp(arguments[1], forms[i].word) == 0) {
      mode = forms[i].mode;
      at = 2;
    }
  const char *word = at < count ? arguments[at] : "";
  bool is_last = at == count - 1;
  if (is_last && (strcmp(word, "-") == 0 || word[0] != '-')) {
    status = convert_report(word, mode);
  } else if (count == 2 && strcmp(word, "--markdown") == 0) {
    stats_page_print();
  } else if (count == 2 && strcmp(word, "--schema") == 0) {
    stats_schema_print();
  } else {
    return tool_refuse("takes one form and one FILE, --markdown or --schema");
  }
  return tool_end(status);
}
