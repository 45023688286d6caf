/* An allocation trace: as it is, and with the marks, lengths and checksums of its chunks put right. Whatever opens
 * is read twice, to the same end, and its plan written. */
#include "fuzz.h"

#include "bench/trace/trace.h"

static uint64_t read_all(struct trace *trace, const struct trace_facts *facts) {
  struct trace_event events[64];
  uint64_t count = 0, time = 0;
  int64_t live = 0;
  for (size_t got; (got = trace_read(trace, events, 64)) > 0;)
    for (size_t i = 0; i < got; i++, count++) {
      CHECK(events[i].kind <= TRACE_DO_REALLOC && events[i].time_us >= time && events[i].size <= TRACE_SIZE_MAX);
      time = events[i].time_us;
      live += events[i].delta;
      CHECK(live >= 0);
    }
  struct trace_facts after;
  trace_facts_of(trace, &after);
  for (uint32_t i = 0; i < after.sites; i++) {
    const struct trace_site_row *site = &trace_sites(trace)[i];
    CHECK(site->module == UINT32_MAX || site->module < facts->modules);
  }
  return count;
}

static void read_trace(const void *bytes, size_t length) {
  char problem[TRACE_SENTENCE] = "";
  struct fuzz_file file = fuzz_file("trace", bytes, length), plan = fuzz_file("plan", "", 0);
  struct trace *trace = trace_open(file.path, problem);
  CHECK((trace == NULL) == (problem[0] != 0));
  if (trace) {
    struct trace_facts facts;
    trace_facts_of(trace, &facts);
    CHECK(facts.damage_offset <= facts.file_bytes && facts.file_bytes == length);
    for (uint32_t i = 0; i < facts.modules; i++)
      CHECK(memchr(trace_module_of(trace, i)->name, 0, TRACE_NAME_BYTES));
    uint64_t count = read_all(trace, &facts);
    CHECK(trace_rewind(trace) && (read_all(trace, &facts) == count || trace_is_short_of_memory(trace)));
    trace_plan(trace, plan.path, problem);
    trace_close(trace);
  }
  close(plan.fd);
  close(file.fd);
}

static void mend(uint8_t *bytes, size_t length) {
  static struct trace_crc crc;
  if (crc.table[0][1] == 0)
    trace_crc_prepare(&crc);
  for (size_t at = 0; length - at >= sizeof(struct trace_chunk);) {
    struct trace_chunk chunk;
    memcpy(&chunk, bytes + at, sizeof chunk);
    size_t room = length - at - sizeof chunk;
    chunk.mark = TRACE_MARK;
    chunk.version = TRACE_VERSION;
    if (chunk.payload_bytes > room)
      chunk.payload_bytes = (uint32_t)room;
    memcpy(bytes + at, &chunk, sizeof chunk);
    chunk.crc = trace_crc_of(&crc, bytes + at + 8, sizeof chunk - 8 + chunk.payload_bytes);
    memcpy(bytes + at, &chunk, sizeof chunk);
    at += sizeof chunk + chunk.payload_bytes;
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_both(data, size, read_trace, mend);
  return 0;
}
