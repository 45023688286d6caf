/* Parses only the JSON that stats/format.c writes: one object on one line, whose values are numbers, strings without
 * escapes, and one array of objects of numbers. */
#include "tools/stats_read.h"

#include <stdio.h>
#include <string.h>

#define REPORT_START "{\"hakmem\":"
#define FIELDS_MAX 256

struct reader {
  char *at;
  char *problem;
};

static bool reader_fail(struct reader *reader, const char *sentence) {
  if (reader->problem[0] == 0)
    snprintf(reader->problem, STATS_READ_SENTENCE, "%s", sentence);
  return false;
}

static bool take_char(struct reader *reader, char c) {
  if (*reader->at != c)
    return false;
  reader->at++;
  return true;
}

/* A string; its end becomes a zero byte. */
static char *take_string(struct reader *reader) {
  if (!take_char(reader, '"'))
    return NULL;
  char *start = reader->at;
  reader->at += strcspn(start, "\"\\\n");
  if (*reader->at != '"')
    return NULL;
  *reader->at++ = 0;
  return start;
}

static bool take_number(struct reader *reader, uint64_t *out) {
  size_t digits = strspn(reader->at, "0123456789");
  *out = 0;
  for (size_t i = 0; i < digits; i++)
    if (__builtin_mul_overflow(*out, 10u, out) || __builtin_add_overflow(*out, (uint64_t)(reader->at[i] - '0'), out))
      return false;
  reader->at += digits;
  return digits > 0;
}

/* A struct of numbers, and which of them came. */
struct target {
  const struct stats_field *fields;
  size_t count;
  void *stats;
  bool seen[FIELDS_MAX];
};

static bool store_value(struct target *target, const char *name, uint64_t value) {
  for (size_t i = 0; i < target->count; i++)
    if (strcmp(target->fields[i].name, name) == 0) {
      memcpy((char *)target->stats + target->fields[i].offset, &value, sizeof value);
      target->seen[i] = true;
      return true;
    }
  return false;
}

static bool is_whole(struct reader *reader, const struct target *target) {
  for (size_t i = 0; i < target->count; i++)
    if (!target->seen[i]) {
      snprintf(reader->problem, STATS_READ_SENTENCE, "the report has no '%s': another version of hakmem wrote it",
               target->fields[i].name);
      return false;
    }
  return true;
}

static bool read_class(struct reader *reader, struct hak_class_stats *out) {
  struct target target = {.fields = stats_class_fields, .count = stats_class_field_count, .stats = out};
  if (!take_char(reader, '{'))
    return false;
  do {
    uint64_t value;
    const char *name = take_string(reader);
    if (name == NULL || !take_char(reader, ':') || !take_number(reader, &value))
      return false;
    store_value(&target, name, value);
  } while (take_char(reader, ','));
  return take_char(reader, '}') && is_whole(reader, &target);
}

static bool read_classes(struct reader *reader, struct stats_snapshot *out) {
  if (!take_char(reader, '['))
    return false;
  if (take_char(reader, ']'))
    return true;
  do
    if (out->class_count < HAK_STATS_CLASSES && read_class(reader, &out->classes[out->class_count]))
      out->class_count++;
    else
      return false;
  while (take_char(reader, ','));
  return take_char(reader, ']');
}

struct targets {
  struct target stats, process;
  uint64_t schema;
};

static bool read_value(struct reader *reader, const char *name, struct stats_snapshot *out, struct targets *targets) {
  uint64_t value;
  if (strcmp(name, "classes") == 0)
    return read_classes(reader, out);
  if (*reader->at == '"') {
    const char *string = take_string(reader);
    if (strcmp(name, "hakmem") == 0)
      out->version = string;
    return string != NULL;
  }
  if (!take_number(reader, &value))
    return false;
  if (strcmp(name, "pid") == 0)
    out->pid = value;
  else if (strcmp(name, "schema") == 0)
    targets->schema = value;
  else if (!store_value(&targets->stats, name, value))
    store_value(&targets->process, name, value);
  return true;
}

static bool read_report(struct reader *reader, struct stats_snapshot *out) {
  struct targets targets = {
      .stats = {.fields = stats_fields, .count = stats_field_count, .stats = &out->stats},
      .process = {.fields = stats_process_fields, .count = stats_process_field_count, .stats = &out->process},
  };
  if (!take_char(reader, '{'))
    return false;
  do {
    const char *name = take_string(reader);
    if (name == NULL || !take_char(reader, ':') || !read_value(reader, name, out, &targets))
      return false;
  } while (take_char(reader, ','));
  if (!take_char(reader, '}') || (*reader->at != '\n' && *reader->at != 0))
    return false;
  if (targets.schema != STATS_SCHEMA)
    return reader_fail(reader, "the report is of another schema: another version of hakmem wrote it");
  return is_whole(reader, &targets.stats) && is_whole(reader, &targets.process);
}

void stats_find(FILE *file, char *report, size_t room) {
  size_t matched = 0, length = 0;
  bool is_report = false;
  *report = 0;
  for (int c; (c = getc(file)) != EOF;) {
    if (is_report && c != '\n' && length + 1 < room)
      report[length++] = (char)c;
    is_report = is_report && c != '\n';
    /* No letter of the start but the first is like the first. */
    matched = c == REPORT_START[matched] ? matched + 1 : c == REPORT_START[0];
    if (matched == strlen(REPORT_START)) {
      memcpy(report, REPORT_START, matched);
      length = matched;
      matched = 0;
      is_report = true;
    }
    report[length] = 0;
  }
}

bool stats_read(char *text, struct stats_snapshot *out, char problem[STATS_READ_SENTENCE]) {
  struct reader reader = {.at = text, .problem = problem};
  *out = (struct stats_snapshot){.version = ""};
  problem[0] = 0;
  if (strncmp(text, REPORT_START, strlen(REPORT_START)) != 0)
    return reader_fail(&reader, "there is no report in it (HAKMEM_STATS=json writes one)");
  return read_report(&reader, out) || reader_fail(&reader, "the report is damaged");
}
