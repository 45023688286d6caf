/* hakmem-stats: converts a report of hakmem's counters; prints the pages that describe them. */
#include "tools/stats_read.h"
#include "tools/tool.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

static const char usage[] =
    "hakmem-stats [--text|--json|--openmetrics] FILE\n"
    "hakmem-stats --markdown PAGE|--schema\n"
    "\n"
    "Prints the last report in FILE, which HAKMEM_STATS=json wrote, in another form; - is the standard input.\n"
    "  --text         for people (default)\n"
    "  --json         one object, by docs/stats.schema.json\n"
    "  --openmetrics  for Prometheus and its like\n"
    "  --markdown     prints PAGE, docs/stats.md, with its tables made anew\n"
    "  --schema       prints docs/stats.schema.json\n";

/* --- the pages --- */

static const char *kind_of(const struct stats_field *field) {
  return field->kind == STATS_COUNTER ? "counter" : "gauge";
}

static void print_rows_of(const struct stats_field *fields, size_t count, enum stats_group group) {
  for (size_t i = 0; i < count; i++)
    if (fields[i].group == group)
      printf("| `%s` | %s | %s | %s |\n", fields[i].name, kind_of(&fields[i]), fields[i].unit, fields[i].sentence);
}

/* The page has a table for each group, in their order. */
static void print_rows(unsigned group) {
  print_rows_of(stats_fields, STATS_FIELDS, (enum stats_group)group);
  print_rows_of(stats_process_fields, STATS_PROCESS_FIELDS, (enum stats_group)group);
  print_rows_of(stats_class_fields, STATS_CLASS_FIELDS, (enum stats_group)group);
}

static void print_properties(const char *margin, const struct stats_field *fields, size_t count) {
  for (size_t i = 0; i < count; i++)
    printf(",\n%s\"%s\": {\"type\": \"integer\", \"minimum\": 0, \"description\": \"%s\", \"x-kind\": \"%s\", "
           "\"x-unit\": \"%s\"}",
           margin, fields[i].name, fields[i].sentence, kind_of(&fields[i]), fields[i].unit);
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
  print_properties("    ", stats_process_fields, STATS_PROCESS_FIELDS);
  print_properties("    ", stats_fields, STATS_FIELDS);
  printf(",\n    \"classes\": {\n      \"type\": \"array\",\n      \"maxItems\": %d,\n      \"items\": {\n"
         "        \"type\": \"object\",\n        \"properties\": {\n"
         "          \"%s\": {\"type\": \"integer\", \"minimum\": 16, \"description\": \"%s\"}",
         HAK_STATS_CLASSES, stats_class_fields[0].name, stats_class_fields[0].sentence);
  print_properties("          ", stats_class_fields + 1, STATS_CLASS_FIELDS - 1);
  printf("\n        },\n        \"required\": [");
  print_names(stats_class_fields, STATS_CLASS_FIELDS, "");
  printf("]\n      }\n    }\n  },\n  \"required\": [\"hakmem\", \"schema\", \"pid\"");
  print_names(stats_process_fields, STATS_PROCESS_FIELDS, ", ");
  print_names(stats_fields, STATS_FIELDS, ", ");
  printf(", \"classes\"]\n}\n");
}

/* --- a report --- */

static void convert_report(const char *path, enum stats_mode mode) {
  static struct stats_snapshot snapshot;
  static char bytes[STATS_FORMAT_BYTES_MAX];
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (file == NULL)
    tool_fail(2, "%s: %m", path);
  char none[] = "", *report = stats_find(file);
  if (!feof(file))
    tool_fail(2, "%s: %m", path);
  const char *problem = stats_read(report ? report : none, &snapshot);
  if (problem)
    tool_fail(2, "%s: %s", path, problem);
  struct text text = TEXT_IN(bytes);
  stats_format(&text, mode, &snapshot);
  fwrite(text.bytes, 1, text.length, stdout);
  free(report);
  if (file != stdin)
    fclose(file);
}

int main(int count, char **arguments) {
  const char *path, *page = NULL;
  bool is_text = false, is_json = false, is_metrics = false, is_schema = false;
  const struct tool_option options[] = {
      {"--text", &is_text, NULL},  {"--json", &is_json, NULL},     {"--openmetrics", &is_metrics, NULL},
      {"--markdown", NULL, &page}, {"--schema", &is_schema, NULL}, {NULL, NULL, NULL},
  };
  tool_begin("hakmem-stats", usage, count, arguments);
  int given = tool_words(arguments, options, &path, 1);
  if (is_text + is_json + is_metrics + is_schema + (page != NULL) > 1 || given != !(page || is_schema))
    tool_refuse("takes one form and one FILE, --markdown PAGE or --schema");
  if (page)
    tool_print_page(page, STATS_CLASS + 1, print_rows);
  else if (is_schema)
    schema_print();
  else
    convert_report(path, is_json ? STATS_JSON : is_metrics ? STATS_OPENMETRICS : STATS_TEXT);
  return tool_end(0);
}
