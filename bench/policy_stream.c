#include "policy_stream.h"

#include "adapt/policy_state.h"
#include "inspect/module.h"
#include "large/big_cache.h"
#include "trace/trace.h"

#include <ctype.h>
#include <errno.h>
#include <search.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

enum { BATCH = 4096 };
#define MS_MAX ((uint64_t)UINT32_MAX) /* the engine's clock is of 32 bits */

struct stream {
  void (*each)(void *context, const struct stream_event *event);
  void *context;
  uint64_t ms;
  char *problem;
};

__attribute__((format(printf, 2, 3))) static bool wrong(struct stream *stream, const char *format, ...) {
  va_list list;
  va_start(list, format);
  vsnprintf(stream->problem, STREAM_SENTENCE, format, list);
  va_end(list);
  return false;
}

static bool is_large(uint64_t size) { return size > HAK_SMALL_MAX; }

static void tell(struct stream *stream, uint64_t site, const char *module, uint64_t size, bool is_taken) {
  struct stream_event event = {
      .ms = stream->ms, .site = site, .bytes = large_length(size), .module = module, .is_taken = is_taken};
  stream->each(stream->context, &event);
}

/* --- text --- */

/* A decimal number of at most `most`, and what stands behind it; NULL if there is none. */
static const char *number(const char *at, uint64_t most, uint64_t *value) {
  if (at == NULL || !isdigit((unsigned char)*at))
    return NULL;
  char *end = NULL;
  errno = 0;
  *value = strtoull(at, &end, 10);
  return errno == 0 && *value <= most ? end : NULL;
}

static const char *space(const char *at) {
  if (at == NULL || (*at != ' ' && *at != '\t'))
    return NULL;
  return at + strspn(at, " \t");
}

static bool text_line(struct stream *stream, const char *line, uint64_t row) {
  uint64_t ms = 0, site = 0, bytes = 0;
  const char *at = space(number(line, MS_MAX, &ms));
  char sign = at ? *at : 0;
  at = sign == '+' || sign == '-' ? space(at + 1) : NULL;
  at = number(space(number(at, STREAM_SITE_MAX, &site)), TRACE_SIZE_MAX, &bytes);
  if (at == NULL || at[strspn(at, " \t\r\n")] != 0)
    return wrong(stream, "line %ju is not MILLISECONDS + SITE BYTES or MILLISECONDS - SITE BYTES: %.60s",
                 (uintmax_t)row, line);
  if (ms < stream->ms)
    return wrong(stream, "line %ju: time goes back from %ju ms to %ju ms", (uintmax_t)row, (uintmax_t)stream->ms,
                 (uintmax_t)ms);
  stream->ms = ms;
  if (is_large(bytes))
    tell(stream, ((uint64_t)STREAM_TAG << POLICY_OFFSET_BITS) + site, "stream", bytes, sign == '+');
  return true;
}

static bool read_text(struct stream *stream, FILE *file) {
  char line[256];
  bool is_good = true;
  for (uint64_t row = 1; is_good && fgets(line, sizeof line, file); row++) {
    size_t length = strcspn(line, "\n");
    bool is_whole = line[length] == '\n' || feof(file);
    line[length] = 0;
    is_good = is_whole ? text_line(stream, line, row)
                       : wrong(stream, "line %ju is longer than %zu characters", (uintmax_t)row, sizeof line - 1);
  }
  return is_good && ferror(file) ? wrong(stream, "%s", strerror(errno)) : is_good;
}

/* --- a trace --- */

/* A large block that is live, in a tree by object. */
struct block {
  uint64_t object, site, size;
  const char *module;
};

static int block_order(const void *left, const void *right) {
  uint64_t a = ((const struct block *)left)->object, b = ((const struct block *)right)->object;
  return a < b ? -1 : a > b;
}

struct reading {
  struct stream *stream;
  struct trace *trace;
  void *blocks;
};

/* A module's tag, as observe/adapt/policy_engine.c makes it of what observe/inspect/module.c finds: a file of
 * ratings from the recorded program fits its trace. */
static uint32_t tag_of(const struct trace_module *module) {
  return policy_tag_of_build(os_module_build((const char *)module->build_id, module->build_id_bytes, module->name));
}

static void find_site(const struct reading *reading, uint32_t row, struct block *block) {
  if (row == TRACE_NO_SITE)
    return;
  const struct trace_site_row *site = &trace_sites(reading->trace)[row];
  const struct trace_module *module = site->module == UINT32_MAX ? NULL : trace_module_of(reading->trace, site->module);
  block->site = policy_site_of(module ? tag_of(module) : 0, site->offset);
  block->module = module ? module->name : NULL;
}

static bool block_begin(struct reading *reading, const struct trace_event *event) {
  struct block *block = malloc(sizeof *block);
  if (block == NULL)
    return false;
  *block = (struct block){.object = event->object, .size = event->size};
  find_site(reading, event->site, block);
  if (tsearch(block, &reading->blocks, block_order) == NULL) {
    free(block);
    return false;
  }
  tell(reading->stream, block->site, block->module, block->size, true);
  return true;
}

static void block_end(struct reading *reading, struct block *block) {
  tell(reading->stream, block->site, block->module, block->size, false);
  tdelete(block, &reading->blocks, block_order);
  free(block);
}

/* A large block that stays one keeps its site and grows where it lies. */
static bool trace_one(struct reading *reading, const struct trace_event *event) {
  struct block key = {.object = event->object};
  struct block **found = tfind(&key, &reading->blocks, block_order);
  bool lives_on = event->kind != TRACE_DO_FREE && is_large(event->size);
  if (found && lives_on) {
    (*found)->size = event->size;
    return true;
  }
  if (found)
    block_end(reading, *found);
  return !lives_on || block_begin(reading, event);
}

static bool trace_all(struct reading *reading) {
  static struct trace_event events[BATCH];
  struct stream *stream = reading->stream;
  for (size_t count; (count = trace_read(reading->trace, events, BATCH)) != 0;)
    for (size_t i = 0; i < count; i++) {
      stream->ms = events[i].time_us / 1000;
      if (stream->ms > MS_MAX)
        return wrong(stream, "goes on for longer than %ju ms", (uintmax_t)MS_MAX);
      if (!trace_one(reading, &events[i]))
        return wrong(stream, "no memory for its live blocks");
    }
  return trace_is_short_of_memory(reading->trace) ? wrong(stream, "no memory for its blocks") : true;
}

static bool read_trace(struct stream *stream, const char *path) {
  char problem[TRACE_SENTENCE];
  struct reading reading = {.stream = stream, .trace = trace_open(path, problem)};
  if (reading.trace == NULL)
    return wrong(stream, "%s", problem);
  bool is_read = trace_all(&reading);
  struct trace_facts facts;
  trace_facts_of(reading.trace, &facts);
  if (facts.damage[0])
    fprintf(stderr, "%s %s; what stands before that is used\n", path, facts.damage);
  while (reading.blocks) { /* what lives at the end is no event */
    struct block *block = *(struct block **)reading.blocks;
    tdelete(block, &reading.blocks, block_order);
    free(block);
  }
  trace_close(reading.trace);
  return is_read;
}

bool stream_read(const char *path, void (*each)(void *context, const struct stream_event *event), void *context,
                 char problem[STREAM_SENTENCE]) {
  struct stream stream = {.each = each, .context = context, .problem = problem};
  FILE *file = strcmp(path, "-") == 0 ? stdin : fopen(path, "re");
  if (file == NULL)
    return wrong(&stream, "%s", strerror(errno));
  int first = getc(file);
  ungetc(first, file);
  bool is_trace = first == (TRACE_MARK & 0xff); /* a letter; text begins with a digit */
  bool is_read = is_trace ? read_trace(&stream, path) : read_text(&stream, file);
  if (file != stdin)
    fclose(file);
  if (is_read)
    each(context, &(struct stream_event){.ms = stream.ms});
  return is_read;
}
