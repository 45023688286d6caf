/* hakmem-stats: converts a report of hakmem's counters; prints the pages that describe them. */
#include "hakmem/hakmem.h"
#include "tools/stats_page.h"
#include "tools/stats_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] = "hakmem-stats [--text|--json|--openmetrics] FILE\n"
                            "hakmem-stats --markdown|--schema\n"
                            "\n"
                            "Prints the last report in FILE, which HAKMEM_STATS=json wrote, in another form; - is "
                            "the standard input.\n"
                            "  --text         for people (default)\n"
                            "  --json         one object, by docs/stats.schema.json\n"
                            "  --openmetrics  for Prometheus and its like\n"
                            "  --markdown     prints docs/stats.md\n"
                            "  --schema       prints docs/stats.schema.json\n";

#define FILE_BYTES_MAX ((size_t)64 << 20)

static int print_complaint(const char *what, const char *sentence) {
  fprintf(stderr, "hakmem-stats: %s: %s\n", what, sentence);
  return 2;
}

/* Reads the whole file and appends a zero byte; NULL and errno if it cannot be read. */
static char *read_all(const char *path) {
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "r");
  char *text = NULL;
  size_t length = 0, capacity = 0;
  if (file == NULL)
    return NULL;
  errno = 0;
  do {
    if (length + 1 >= capacity) {
      capacity = capacity ? capacity * 2 : 1 << 16;
      char *longer = capacity <= FILE_BYTES_MAX ? realloc(text, capacity) : NULL;
      if (longer == NULL) {
        free(text);
        errno = EFBIG;
        text = NULL;
        break;
      }
      text = longer;
    }
    length += fread(text + length, 1, capacity - length - 1, file);
  } while (!feof(file) && !ferror(file));
  if (text && ferror(file)) {
    free(text);
    text = NULL;
  }
  if (text)
    text[length] = 0;
  if (file != stdin)
    fclose(file);
  return text;
}

static int convert_report(const char *path, enum stats_mode mode) {
  static struct stats_snapshot snapshot;
  static char bytes[STATS_FORMAT_BYTES_MAX];
  char problem[STATS_READ_SENTENCE];
  char *report = read_all(path);
  if (report == NULL) {
    fprintf(stderr, "hakmem-stats: %s: %m\n", path);
    return 2;
  }
  int status = 0;
  if (stats_read(report, &snapshot, problem)) {
    struct text text = TEXT_IN(bytes);
    stats_format(&text, mode, &snapshot);
    fwrite(text.bytes, 1, text.length, stdout);
  } else {
    status = print_complaint(path, problem);
  }
  free(report);
  return status;
}

int main(int count, char **arguments) {
  static const struct {
    const char *word;
    enum stats_mode mode;
  } forms[] = {{"--text", STATS_TEXT}, {"--json", STATS_JSON}, {"--openmetrics", STATS_OPENMETRICS}};
  enum stats_mode mode = STATS_TEXT;
  hak_option_set("stats", "off"); /* a summary of this program would be in the way */
  int at = 1, status = 2;
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
    status = 0;
  } else if (count == 2 && strcmp(word, "--schema") == 0) {
    stats_schema_print();
    status = 0;
  } else if (count == 2 && (strcmp(word, "--help") == 0 || strcmp(word, "-h") == 0)) {
    fputs(usage, stdout);
    status = 0;
  } else {
    fputs("hakmem-stats: takes one form and one FILE, --markdown or --schema; see: hakmem-stats --help\n", stderr);
  }
  return fflush(stdout) != 0 ? 1 : status;
}
