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

static void text_size(struct text *text, const char *words, uint64_t bytes) {
  text_string(text, words);
  text_bytes(text, bytes);
}

static void format_text(struct text *text, const struct stats_snapshot *snapshot) {
  const struct hak_stats *s = &snapshot->stats;
  text_size(text, "hakmem: peak RSS ", snapshot->process.rss_peak_bytes);
  text_format(text, ", page faults %lu\n", snapshot->process.faults_minor + snapshot->process.faults_major);
  text_size(text, "hakmem: heap ", s->live_bytes);
  text_size(text, " live of ", s->heap_bytes);
  text_size(text, ", at most ", s->heap_peak_bytes);
  text_size(text, "; own tables ", s->metadata_bytes);
  text_format(text, " mapped\nhakmem: system calls %lu (map %lu, unmap %lu, protect %lu, ", s->calls, s->calls_map,
              s->calls_unmap, s->calls_protect);
  text_format(text, "advise %lu, remap %lu, futex %lu, other %lu)\n", s->calls_advise, s->calls_remap, s->calls_futex,
              s->calls_other);
  text_string(text, "hakmem: bin hit rate ");
  text_hit_rate(text, s);
  text_format(text, "; refills %lu, flushes %lu, remote frees %lu, heaps %lu\n", s->refills, s->flushes,
              s->remote_frees, s->heap_count);
  if (s->mallocs > 0)
    text_format(text, "hakmem: counted: mallocs %lu, frees %lu; large objects %lu, freed %lu\n", s->mallocs, s->frees,
                s->large_allocations, s->large_frees);
  if (s->policy_fixed_ns > 0) {
    text_format(text, "hakmem: policy decides about %lu call sites by size, after %lu matches; cost ", s->policy_arms,
                s->policy_matches);
    text_fraction(text, s->policy_cost_ns, s->policy_fixed_ns, 2);
    text_string(text, " of the best single strategy's\n");
  }
}

/* --- JSON --- */

/* stats: the struct of these fields, which is an array of numbers. */
static void json_fields(struct text *text, const char *first, const struct stats_field *fields, size_t count,
                        const void *stats) {
  for (size_t i = 0; i < count; i++)
    text_format(text, "%s\"%s\":%lu", i ? "," : first, fields[i].name, ((const uint64_t *)stats)[i]);
}

static void format_json(struct text *text, const struct stats_snapshot *snapshot) {
  text_format(text, "{\"hakmem\":\"%s\",\"schema\":%lu,\"pid\":%lu", snapshot->version, (uint64_t)STATS_SCHEMA,
              snapshot->pid);
  json_fields(text, ",", stats_process_fields, STATS_PROCESS_FIELDS, &snapshot->process);
  json_fields(text, ",", stats_fields, STATS_FIELDS, &snapshot->stats);
  text_string(text, ",\"classes\":[");
  for (size_t i = 0; i < snapshot->class_count; i++) {
    text_string(text, i ? ",{" : "{");
    json_fields(text, "", stats_class_fields, STATS_CLASS_FIELDS, &snapshot->classes[i]);
    text_string(text, "}");
  }
  text_string(text, "]}\n");
}

/* --- OpenMetrics --- */

void stats_metric_head(struct text *text, const char *family, const struct stats_field *field) {
  const char *kind = field->kind == STATS_COUNTER ? "counter" : "gauge";
  text_format(text, "# TYPE " STATS_PREFIX "%s%s %s\n", family, field->name, kind);
  if (strcmp(field->unit, "bytes") == 0)
    text_format(text, "# UNIT " STATS_PREFIX "%s%s bytes\n", family, field->name);
  text_format(text, "# HELP " STATS_PREFIX "%s%s %s\n", family, field->name, field->sentence);
}

static void metric_name(struct text *text, const char *family, const struct stats_field *field, uint64_t pid) {
  const char *ending = field->kind == STATS_COUNTER ? "_total" : "";
  text_format(text, STATS_PREFIX "%s%s%s{pid=\"%lu\"", family, field->name, ending, pid);
}

static void write_metrics(struct text *text, const struct stats_field *fields, size_t count, const void *stats,
                          uint64_t pid) {
  for (size_t i = 0; i < count; i++) {
    stats_metric_head(text, "", &fields[i]);
    metric_name(text, "", &fields[i], pid);
    text_format(text, "} %lu\n", ((const uint64_t *)stats)[i]);
  }
}

/* Writes the metrics of size classes, with the block size as a label. */
static void class_metrics(struct text *text, const struct stats_snapshot *snapshot) {
  for (size_t i = 1; i < STATS_CLASS_FIELDS; i++) {
    stats_metric_head(text, "class_", &stats_class_fields[i]);
    for (size_t j = 0; j < snapshot->class_count; j++) {
      metric_name(text, "class_", &stats_class_fields[i], snapshot->pid);
      text_format(text, ",block_bytes=\"%lu\"} %lu\n", snapshot->classes[j].block_bytes,
                  ((const uint64_t *)&snapshot->classes[j])[i]);
    }
  }
}
_Static_assert(offsetof(struct hak_class_stats, block_bytes) == 0, "the first row of a class is its label");

static void format_openmetrics(struct text *text, const struct stats_snapshot *snapshot) {
  text_string(text, "# TYPE " STATS_PREFIX "build_info gauge\n# HELP " STATS_PREFIX "build_info The library.\n");
  text_format(text, STATS_PREFIX "build_info{pid=\"%lu\",version=\"%s\"} 1\n", snapshot->pid, snapshot->version);
  write_metrics(text, stats_process_fields, STATS_PROCESS_FIELDS, &snapshot->process, snapshot->pid);
  write_metrics(text, stats_fields, STATS_FIELDS, &snapshot->stats, snapshot->pid);
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
