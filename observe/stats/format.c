#include "stats/format.h"

#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "inspect/figures.h"
#include "os/os.h"

#include <string.h>

bool stats_snapshot_take(struct stats_snapshot *out) {
  out->version = hak_version();
  out->pid = (uint64_t)os_process_id();
  if (!slow_path_begin_patiently())
    return false;
  stats_take(&out->stats);
  out->class_count = stats_classes_take(out->classes, HAK_STATS_CLASSES);
  slow_path_end();
  hak_process_stats_get(&out->process);
  return true;
}

/* --- text --- */

/* The fast path counts nothing, so only a lower bound of the hit rate is known. Of the blocks that refills brought,
 * those that are neither in bins nor flushed were handed out, one per refill as the miss. Blocks that free pushed and
 * malloc popped again only add hits. */
static void text_hit_rate(struct text *text, const struct hak_stats *s) {
  uint64_t back = s->flushed_blocks + s->bin_blocks;
  uint64_t served = s->refilled_blocks > back ? s->refilled_blocks - back : 0;
  if (served <= s->refills) {
    text_string(text, "not known");
    return;
  }
  text_string(text, "at least ");
  text_fraction(text, (served - s->refills) * 100, served, 1);
  text_string(text, " %");
}

static void text_count(struct text *text, const char *words, uint64_t value) {
  text_string(text, words);
  text_decimal(text, value);
}

static void text_size(struct text *text, const char *words, uint64_t bytes) {
  text_string(text, words);
  text_bytes(text, bytes);
}

static void text_calls(struct text *text, const struct hak_stats *s) {
  text_count(text, "hakmem: system calls ", s->calls);
  text_count(text, " (map ", s->calls_map);
  text_count(text, ", unmap ", s->calls_unmap);
  text_count(text, ", protect ", s->calls_protect);
  text_count(text, ", advise ", s->calls_advise);
  text_count(text, ", remap ", s->calls_remap);
  text_count(text, ", futex ", s->calls_futex);
  text_count(text, ", other ", s->calls_other);
  text_string(text, ")\n");
}

static void format_text(struct text *text, const struct stats_snapshot *snapshot) {
  const struct hak_stats *s = &snapshot->stats;
  text_size(text, "hakmem: peak RSS ", snapshot->process.rss_peak_bytes);
  text_count(text, ", page faults ", snapshot->process.faults_minor + snapshot->process.faults_major);
  text_size(text, "\nhakmem: heap ", s->live_bytes);
  text_size(text, " live of ", s->heap_bytes);
  text_size(text, ", at most ", s->heap_peak_bytes);
  text_size(text, "; own tables ", s->metadata_bytes);
  text_string(text, " mapped\n");
  text_calls(text, s);
  text_string(text, "hakmem: bin hit rate ");
  text_hit_rate(text, s);
  text_count(text, "; refills ", s->refills);
  text_count(text, ", flushes ", s->flushes);
  text_count(text, ", remote frees ", s->remote_frees);
  text_count(text, ", heaps ", s->heap_count);
  text_string(text, "\n");
  if (s->mallocs > 0) {
    text_count(text, "hakmem: counted: mallocs ", s->mallocs);
    text_count(text, ", frees ", s->frees);
    text_count(text, "; large objects ", s->large_allocations);
    text_count(text, ", freed ", s->large_frees);
    text_string(text, "\n");
  }
  if (s->policy_fixed_ns > 0) {
    text_count(text, "hakmem: policy decides about ", s->policy_arms);
    text_count(text, " call sites by size, after ", s->policy_matches);
    text_string(text, " matches; cost ");
    text_fraction(text, s->policy_cost_ns, s->policy_fixed_ns, 2);
    text_string(text, " of the best single strategy's\n");
  }
}

/* --- JSON --- */

static void json_pair(struct text *text, const char *separator, const char *name, uint64_t value) {
  text_strings(text, separator, "\"", name);
  text_count(text, "\":", value);
}

static void json_fields(struct text *text, const char *first, const struct stats_field *fields, size_t count,
                        const void *stats) {
  for (size_t i = 0; i < count; i++)
    json_pair(text, i ? "," : first, fields[i].name, stats_value(stats, &fields[i]));
}

static void format_json(struct text *text, const struct stats_snapshot *snapshot) {
  text_strings(text, "{\"hakmem\":\"", snapshot->version);
  json_pair(text, "\",", "schema", STATS_SCHEMA);
  json_pair(text, ",", "pid", snapshot->pid);
  json_fields(text, ",", stats_process_fields, stats_process_field_count, &snapshot->process);
  json_fields(text, ",", stats_fields, stats_field_count, &snapshot->stats);
  text_string(text, ",\"classes\":[");
  for (size_t i = 0; i < snapshot->class_count; i++) {
    text_string(text, i ? ",{" : "{");
    json_fields(text, "", stats_class_fields, stats_class_field_count, &snapshot->classes[i]);
    text_string(text, "}");
  }
  text_string(text, "]}\n");
}

/* --- OpenMetrics --- */

/* The output is also valid in Prometheus' own text format, where UNIT and EOF are comments. The label pid tells several
 * processes' files apart. */
static void metric_line(struct text *text, const char *what, const char *family, const struct stats_field *field,
                        const char *words) {
  text_strings(text, what, STATS_PREFIX, family, field->name, " ", words, "\n");
}

static void metric_head(struct text *text, const char *family, const struct stats_field *field) {
  metric_line(text, "# TYPE ", family, field, field->kind == STATS_COUNTER ? "counter" : "gauge");
  if (strcmp(field->unit, "bytes") == 0)
    metric_line(text, "# UNIT ", family, field, "bytes");
  metric_line(text, "# HELP ", family, field, field->sentence);
}

static void metric_name(struct text *text, const char *family, const struct stats_field *field, uint64_t pid) {
  text_strings(text, STATS_PREFIX, family, field->name);
  text_count(text, field->kind == STATS_COUNTER ? "_total{pid=\"" : "{pid=\"", pid);
}

static void write_metrics(struct text *text, const struct stats_field *fields, size_t count, const void *stats,
                          uint64_t pid) {
  for (size_t i = 0; i < count; i++) {
    metric_head(text, "", &fields[i]);
    metric_name(text, "", &fields[i], pid);
    text_count(text, "\"} ", stats_value(stats, &fields[i]));
    text_string(text, "\n");
  }
}

/* Writes the metrics of size classes, with the block size as a label. */
static void class_metrics(struct text *text, const struct stats_snapshot *snapshot) {
  for (size_t i = 1; i < stats_class_field_count; i++) {
    metric_head(text, "class_", &stats_class_fields[i]);
    for (size_t j = 0; j < snapshot->class_count; j++) {
      metric_name(text, "class_", &stats_class_fields[i], snapshot->pid);
      text_count(text, "\",block_bytes=\"", snapshot->classes[j].block_bytes);
      text_count(text, "\"} ", stats_value(&snapshot->classes[j], &stats_class_fields[i]));
      text_string(text, "\n");
    }
  }
}
_Static_assert(offsetof(struct hak_class_stats, block_bytes) == 0, "the first row of a class is its label");

static void format_openmetrics(struct text *text, const struct stats_snapshot *snapshot) {
  text_string(text, "# TYPE " STATS_PREFIX "build_info gauge\n# HELP " STATS_PREFIX "build_info The library.\n");
  text_count(text, STATS_PREFIX "build_info{pid=\"", snapshot->pid);
  text_strings(text, "\",version=\"", snapshot->version, "\"} 1\n");
  write_metrics(text, stats_process_fields, stats_process_field_count, &snapshot->process, snapshot->pid);
  write_metrics(text, stats_fields, stats_field_count, &snapshot->stats, snapshot->pid);
  class_metrics(text, snapshot);
  text_string(text, "# EOF\n");
}

void stats_format(struct text *text, enum stats_mode mode, const struct stats_snapshot *snapshot) {
  if (mode == STATS_JSON)
    format_json(text, snapshot);
  else if (mode == STATS_OPENMETRICS)
    format_openmetrics(text, snapshot);
  else
    format_text(text, snapshot);
}
