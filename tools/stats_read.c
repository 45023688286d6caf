/* Reads only the JSON that stats/format.c writes: one object on one line, which begins with the version and ends with
 * the array of classes; all other values are numbers, and no string has escapes. */
#include "tools/stats_read.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define REPORT_START "{\"hakmem\":"
#define CLASSES_START ",\"classes\":["
#define REPORT_END "]}"

static const char damaged[] = "the report is damaged";

/* This and the next two return what is wrong; NULL: nothing. */
static const char *read_number(const char *object, const char *name, uint64_t *out) {
  static char missing[128];
  char key[64], *end;
  snprintf(key, sizeof key, "\"%s\":", name);
  const char *at = strstr(object, key);
  if (at == NULL) {
    snprintf(missing, sizeof missing, "the report has no '%s': another version of hakmem wrote it", name);
    return missing;
  }
  at += strlen(key);
  errno = 0;
  *out = strtoull(at, &end, 10);
  return *at >= '0' && *at <= '9' && errno == 0 && (*end == ',' || *end == 0) ? NULL : damaged;
}

static const char *read_fields(const char *object, const struct stats_field *fields, size_t count, void *stats) {
  const char *problem = NULL;
  for (size_t i = 0; i < count && problem == NULL; i++)
    problem = read_number(object, fields[i].name, (uint64_t *)stats + i);
  return problem;
}

/* Reads the objects at `at`, behind which the report ends. */
static const char *read_classes(char *at, struct stats_snapshot *out) {
  const char *problem = NULL;
  while (strncmp(at, "{\"", 2) == 0 && out->class_count < HAK_STATS_CLASSES && problem == NULL) {
    char *end = strchr(at, '}');
    if (end == NULL)
      break;
    *end = 0;
    problem = read_fields(at, stats_class_fields, STATS_CLASS_FIELDS, &out->classes[out->class_count++]);
    at = end + 1 + (end[1] == ',');
  }
  return problem || strcmp(at, REPORT_END) == 0 ? problem : damaged;
}

const char *stats_read(char *text, struct stats_snapshot *out) {
  uint64_t schema = 0;
  *out = (struct stats_snapshot){.version = ""};
  if (strncmp(text, REPORT_START, strlen(REPORT_START)) != 0)
    return "there is no report in it (HAKMEM_STATS=json writes one)";
  text[strcspn(text, "\n")] = 0;
  char *version = text + strlen(REPORT_START), *classes = strstr(text, CLASSES_START);
  char *rest = *version == '"' ? strchr(version + 1, '"') : NULL;
  if (rest == NULL || classes == NULL || classes < rest)
    return damaged;
  *rest++ = *classes = 0;
  out->version = version + 1;
  const char *problem = read_number(rest, "schema", &schema);
  if (problem == NULL && schema != STATS_SCHEMA)
    return "the report is of another schema: another version of hakmem wrote it";
  if (problem == NULL)
    problem = read_number(rest, "pid", &out->pid);
  if (problem == NULL)
    problem = read_fields(rest, stats_fields, STATS_FIELDS, &out->stats);
  if (problem == NULL)
    problem = read_fields(rest, stats_process_fields, STATS_PROCESS_FIELDS, &out->process);
  return problem ? problem : read_classes(classes + strlen(CLASSES_START), out);
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
