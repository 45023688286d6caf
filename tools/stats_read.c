/* Reads only the JSON that stats/format.c writes: one object on one line, which begins with the version and ends with
 * the array of classes; all other values are numbers, and no string has escapes. */
#include "tools/stats_read.h"

#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_START "{\"hakmem\":"
#define CLASSES_START ",\"classes\":["
#define REPORT_END "]}"

__attribute__((format(printf, 2, 3))) static bool wrong(char problem[STATS_READ_SENTENCE], const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(problem, STATS_READ_SENTENCE, format, list);
  va_end(list);
  return false;
}

static bool is_damaged(char problem[STATS_READ_SENTENCE]) { return wrong(problem, "the report is damaged"); }

static bool read_number(const char *object, const char *name, uint64_t *out, char problem[STATS_READ_SENTENCE]) {
  char key[64], *end;
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *at = strstr(object, key);
  if (at == NULL)
    return wrong(problem, "the report has no '%s': another version of hakmem wrote it", name);
  at += strlen(key);
  errno = 0;
  *out = strtoull(at, &end, 10);
  return (*at >= '0' && *at <= '9' && errno == 0 && (*end == ',' || *end == 0)) || is_damaged(problem);
}

static bool read_fields(const char *object, const struct stats_field *fields, size_t count, void *stats,
                        char problem[STATS_READ_SENTENCE]) {
  for (size_t i = 0; i < count; i++)
    if (!read_number(object, fields[i].name, (uint64_t *)stats + i, problem))
      return false;
  return true;
}

/* Reads the objects at `at`, behind which the report ends. */
static bool read_classes(char *at, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]) {
  while (strncmp(at, "{\"", 2) == 0 && out->class_count < HAK_STATS_CLASSES) {
    char *end = strchr(at, '}');
    if (end == NULL)
      break;
    *end = 0;
    if (!read_fields(at, stats_class_fields, STATS_CLASS_FIELDS, &out->classes[out->class_count++], problem))
      return false;
    at = end + 1 + (end[1] == ',');
  }
  return strcmp(at, REPORT_END) == 0 || is_damaged(problem);
}

bool stats_read(char *text, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]) {
  uint64_t schema = 0;
  *out = (struct stats_snapshot){.version = ""};
  if (strncmp(text, REPORT_START, strlen(REPORT_START)) != 0)
    return wrong(problem, "there is no report in it (HAKMEM_STATS=json writes one)");
  text[strcspn(text, "\n")] = 0;
  char *version = text + strlen(REPORT_START), *classes = strstr(text, CLASSES_START);
  char *rest = *version == '"' ? strchr(version + 1, '"') : NULL;
  if (rest == NULL || classes == NULL || classes < rest)
    return is_damaged(problem);
  *rest++ = *classes = 0;
  out->version = version + 1;
  if (!read_number(rest, "schema", &schema, problem))
    return false;
  if (schema != STATS_SCHEMA)
    return wrong(problem, "the report is of another schema: another version of hakmem wrote it");
  return read_number(rest, "pid", &out->pid, problem) &&
         read_fields(rest, stats_fields, STATS_FIELDS, &out->stats, problem) &&
         read_fields(rest, stats_process_fields, STATS_PROCESS_FIELDS, &out->process, problem) &&
         read_classes(classes + strlen(CLASSES_START), out, problem);
}

char *stats_find(FILE *file) {
  char *line = NULL, *report = NULL;
  size_t room = 0;
  for (ssize_t length; (length = getline(&line, &room, file)) > 0;)
    for (char *at = line; (at = memmem(at, (size_t)(line + length - at), REPORT_START, strlen(REPORT_START))); at++) {
      free(report);
      report = strdup(at);
    }
  free(line);
  return report;
}
