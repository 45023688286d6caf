#include "adapt/policy_file.h"

#include <string.h>

#define MARK "hakpol\r\n" /* a transfer as text would change the line ends */
#define MARK_BYTES (sizeof MARK - 1)
#define CHECKSUM_BYTES 8u

/* Offsets in the head. */
enum {
  AT_VERSION = 8,
  AT_STRATEGIES = 12,
  AT_RANGES = 16,
  AT_RANGE_FIRST = 20,
  AT_EPOCH_EVENTS = 24,
  AT_MODULES = 28,
  AT_RECORDS = 32,
  AT_MAPPING_RANGE = 36,
  AT_COSTS_PART = 40,
  AT_COSTS_MAPPING = 56,
  AT_DELAYS = 72,
  AT_WRITER = 96,
  HEAD_BYTES = 128,
};
_Static_assert(MARK_BYTES == AT_VERSION, "the version follows the mark");
_Static_assert(AT_DELAYS + 4 * KEEP_STRATEGIES == AT_WRITER, "the delays fill their place");
_Static_assert(AT_WRITER + POLICY_FILE_WRITER_BYTES == HEAD_BYTES, "the writer is the head's last");

#define MODULE_BYTES (4u + POLICY_FILE_NAME_BYTES)

/* Offsets in a record. */
enum {
  AT_SITE = 0,
  AT_TOTALS = 8,
  AT_ACTED = AT_TOTALS + 8 * KEEP_STRATEGIES,
  AT_RATINGS = AT_ACTED + 8,
  AT_EPOCHS = AT_RATINGS + 4 * KEEP_STRATEGIES,
  AT_SWITCHES = AT_EPOCHS + 4,
  AT_KIND = AT_SWITCHES + 4,
  AT_RANGE = AT_KIND + 1,
  AT_LEADER = AT_KIND + 2,
  AT_NOTHING = AT_KIND + 3,
  RECORD_BYTES = AT_KIND + 4,
};
_Static_assert(MODULE_BYTES == 32 && RECORD_BYTES == 100, "as policy_file.h says");

/* --- numbers and texts --- */

static void put_number(unsigned char *at, uint64_t value, unsigned bytes) {
  for (unsigned i = 0; i < bytes; i++)
    at[i] = (unsigned char)(value >> 8 * i);
}

static uint64_t get_number(const unsigned char *at, unsigned bytes) {
  uint64_t value = 0;
  for (unsigned i = 0; i < bytes; i++)
    value |= (uint64_t)at[i] << 8 * i;
  return value;
}

static uint32_t get_u32(const unsigned char *at) { return (uint32_t)get_number(at, 4); }

static bool is_control(unsigned char c) { return c < ' ' || c == 127; }

/* Copies a text to a place that is zero. */
static void put_text(unsigned char *at, const char *text, unsigned bytes) {
  for (unsigned i = 0; i + 1 < bytes && text[i]; i++)
    at[i] = is_control((unsigned char)text[i]) ? '?' : (unsigned char)text[i];
}

static bool is_text(const unsigned char *at, unsigned bytes) {
  unsigned length = 0;
  while (length < bytes && !is_control(at[length]))
    length++;
  for (unsigned i = length; i < bytes; i++)
    if (at[i] != 0)
      return false;
  return length < bytes;
}

#define CRC_POLYNOMIAL 0xc96c5795d7870f42u /* of ECMA-182, bits reversed */

static uint64_t file_checksum(const unsigned char *bytes, size_t length) {
  uint64_t table[256];
  for (unsigned i = 0; i < 256; i++) {
    uint64_t crc = i;
    for (unsigned bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
    table[i] = crc;
  }
  uint64_t crc = UINT64_MAX;
  for (size_t i = 0; i < length; i++)
    crc = crc >> 8 ^ table[(crc ^ bytes[i]) & 0xff];
  return ~crc;
}

static void put_costs(unsigned char *at, const struct policy_costs *costs) {
  put_number(at, costs->fault_ns, 4);
  put_number(at + 4, costs->purge_page_ns, 4);
  put_number(at + 8, costs->purge_call_ns, 4);
  put_number(at + 12, costs->rent_64k, 4);
}

static struct policy_costs get_costs(const unsigned char *at) {
  return (struct policy_costs){.fault_ns = get_u32(at),
                               .purge_page_ns = get_u32(at + 4),
                               .purge_call_ns = get_u32(at + 8),
                               .rent_64k = get_u32(at + 12)};
}

/* --- reading --- */

static const unsigned char *module_at(const struct policy_file *file, uint32_t i) {
  return file->bytes + HEAD_BYTES + (size_t)i * MODULE_BYTES;
}

static const unsigned char *record_at(const struct policy_file *file, uint32_t i) {
  return module_at(file, file->module_count) + (size_t)i * RECORD_BYTES;
}

struct policy_module policy_file_module(const struct policy_file *file, uint32_t i) {
  const unsigned char *at = module_at(file, i);
  struct policy_module module = {.tag = get_u32(at)};
  memcpy(module.name, at + 4, sizeof module.name);
  return module;
}

struct policy_record policy_file_record(const struct policy_file *file, uint32_t i) {
  const unsigned char *at = record_at(file, i);
  struct policy_record record = {
      .site = get_number(at + AT_SITE, 8),
      .total_acted = get_number(at + AT_ACTED, 8),
      .epochs = get_u32(at + AT_EPOCHS),
      .switches = get_u32(at + AT_SWITCHES),
      .kind = at[AT_KIND],
      .range = at[AT_RANGE],
      .leader = at[AT_LEADER],
  };
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++) {
    record.total[strategy] = get_number(at + AT_TOTALS + (size_t)8 * strategy, 8);
    record.rating[strategy] = (int32_t)get_u32(at + AT_RATINGS + (size_t)4 * strategy);
  }
  return record;
}

static bool record_is_sound(const struct policy_record *record) {
  bool sound = record->kind < POLICY_RECORD_KINDS && record->range < POLICY_RANGES && record->leader < KEEP_STRATEGIES;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    sound &= record->rating[strategy] <= POLICY_RATING_MAX && record->rating[strategy] >= -POLICY_RATING_MAX;
  return sound && (record->kind == POLICY_RECORD_SITE || record->site == 0);
}

static bool content_is_sound(const struct policy_file *file) {
  for (uint32_t i = 0; i < file->module_count; i++)
    if (get_u32(module_at(file, i)) == 0 || !is_text(module_at(file, i) + 4, POLICY_FILE_NAME_BYTES))
      return false;
  for (uint32_t i = 0; i < file->record_count; i++) {
    struct policy_record record = policy_file_record(file, i);
    if (!record_is_sound(&record) || record_at(file, i)[AT_NOTHING] != 0)
      return false;
  }
  return is_text(file->bytes + AT_WRITER, POLICY_FILE_WRITER_BYTES) && file->costs.mapping_range <= POLICY_RANGES;
}

static bool has_our_strategies(const unsigned char *bytes) {
  bool same = get_u32(bytes + AT_STRATEGIES) == KEEP_STRATEGIES && get_u32(bytes + AT_RANGES) == POLICY_RANGES &&
              get_u32(bytes + AT_RANGE_FIRST) == POLICY_RANGE_FIRST;
  for (unsigned strategy = 0; same && strategy < KEEP_STRATEGIES; strategy++)
    same = get_u32(bytes + AT_DELAYS + (size_t)4 * strategy) == keep_delay_ms((enum keep)strategy);
  return same;
}

enum policy_file_error policy_file_open(struct policy_file *file, const void *content, size_t length) {
  const unsigned char *bytes = content;
  if (memcmp(bytes, MARK, length < MARK_BYTES ? length : MARK_BYTES) != 0)
    return POLICY_FILE_FOREIGN;
  if (length < AT_STRATEGIES + CHECKSUM_BYTES ||
      get_number(bytes + length - CHECKSUM_BYTES, CHECKSUM_BYTES) != file_checksum(bytes, length - CHECKSUM_BYTES))
    return POLICY_FILE_DAMAGED;
  if (get_u32(bytes + AT_VERSION) > POLICY_FILE_VERSION)
    return POLICY_FILE_NEWER;
  if (get_u32(bytes + AT_VERSION) != POLICY_FILE_VERSION || length < HEAD_BYTES + CHECKSUM_BYTES)
    return POLICY_FILE_DAMAGED;
  if (!has_our_strategies(bytes))
    return POLICY_FILE_OTHER;
  struct policy_file found = {
      .bytes = bytes,
      .module_count = get_u32(bytes + AT_MODULES),
      .record_count = get_u32(bytes + AT_RECORDS),
      .epoch_events = get_u32(bytes + AT_EPOCH_EVENTS),
      .costs = {.part = get_costs(bytes + AT_COSTS_PART),
                .mapping = get_costs(bytes + AT_COSTS_MAPPING),
                .mapping_range = get_u32(bytes + AT_MAPPING_RANGE)},
  };
  memcpy(found.writer, bytes + AT_WRITER, sizeof found.writer);
  if (length != policy_file_bytes(found.module_count, found.record_count) || !content_is_sound(&found))
    return POLICY_FILE_DAMAGED;
  *file = found;
  return POLICY_FILE_OK;
}

void policy_file_merge(const struct policy_file *file, struct policy_table *table) {
  for (uint32_t i = 0; i < file->record_count; i++) {
    struct policy_record record = policy_file_record(file, i);
    enum keep leader = (enum keep)record.leader;
    bool is_site = record.kind == POLICY_RECORD_SITE;
    struct policy_arm *shared =
        record.kind == POLICY_RECORD_PRIOR ? &table->priors[record.range] : &table->rests[record.range];
    const struct policy_arm *arm = is_site ? policy_table_arm_of(table, record.site, record.range) : shared;
    if (arm != NULL && arm->epochs >= record.epochs)
      continue;
    if (is_site)
      policy_table_learned(table, record.site, record.range, record.rating, leader, record.epochs);
    else
      policy_arm_begin_rated(shared, record.rating, leader, record.epochs);
  }
}

/* --- writing --- */

size_t policy_file_bytes(uint32_t module_count, uint32_t record_count) {
  return HEAD_BYTES + (size_t)module_count * MODULE_BYTES + (size_t)record_count * RECORD_BYTES + CHECKSUM_BYTES;
}

/* Returns the next bytes, zeroed; NULL if they do not fit beside the checksum. */
static unsigned char *take_bytes(struct policy_file_writer *writer, size_t bytes) {
  writer->fits = writer->fits && bytes + CHECKSUM_BYTES <= writer->capacity - writer->length;
  if (!writer->fits)
    return NULL;
  unsigned char *at = writer->bytes + writer->length;
  memset(at, 0, bytes);
  writer->length += bytes;
  return at;
}

void policy_file_begin(struct policy_file_writer *writer, void *bytes, size_t capacity,
                       const struct policy_table_costs *costs, const char *by) {
  *writer = (struct policy_file_writer){.bytes = bytes, .capacity = capacity, .fits = true};
  unsigned char *head = take_bytes(writer, HEAD_BYTES);
  if (head == NULL)
    return;
  memcpy(head, MARK, MARK_BYTES);
  put_number(head + AT_VERSION, POLICY_FILE_VERSION, 4);
  put_number(head + AT_STRATEGIES, KEEP_STRATEGIES, 4);
  put_number(head + AT_RANGES, POLICY_RANGES, 4);
  put_number(head + AT_RANGE_FIRST, POLICY_RANGE_FIRST, 4);
  put_number(head + AT_EPOCH_EVENTS, POLICY_EPOCH_EVENTS, 4);
  put_number(head + AT_MAPPING_RANGE, costs->mapping_range, 4);
  put_costs(head + AT_COSTS_PART, &costs->part);
  put_costs(head + AT_COSTS_MAPPING, &costs->mapping);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    put_number(head + AT_DELAYS + (size_t)4 * strategy, keep_delay_ms((enum keep)strategy), 4);
  put_text(head + AT_WRITER, by, POLICY_FILE_WRITER_BYTES);
}

void policy_file_add_module(struct policy_file_writer *writer, uint32_t tag, const char *name) {
  writer->fits = writer->fits && writer->record_count == 0;
  unsigned char *at = take_bytes(writer, MODULE_BYTES);
  if (at == NULL)
    return;
  put_number(at, tag, 4);
  put_text(at + 4, name, POLICY_FILE_NAME_BYTES);
  writer->module_count++;
}

void policy_file_add_record(struct policy_file_writer *writer, const struct policy_record *record) {
  unsigned char *at = take_bytes(writer, RECORD_BYTES);
  if (at == NULL)
    return;
  put_number(at + AT_SITE, record->site, 8);
  put_number(at + AT_ACTED, record->total_acted, 8);
  put_number(at + AT_EPOCHS, record->epochs, 4);
  put_number(at + AT_SWITCHES, record->switches, 4);
  put_number(at + AT_KIND, record->kind, 1);
  put_number(at + AT_RANGE, record->range, 1);
  put_number(at + AT_LEADER, record->leader, 1);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++) {
    put_number(at + AT_TOTALS + (size_t)8 * strategy, record->total[strategy], 8);
    put_number(at + AT_RATINGS + (size_t)4 * strategy, (uint32_t)record->rating[strategy], 4);
  }
  writer->record_count++;
}

static void add_arm(struct policy_file_writer *writer, const struct policy_arm *arm, enum policy_record_kind kind,
                    uint64_t site, unsigned range) {
  struct policy_record record = {
      .site = site,
      .total_acted = arm->total_acted,
      .epochs = arm->epochs,
      .switches = arm->switches,
      .kind = (uint8_t)kind,
      .range = (uint8_t)range,
      .leader = arm->leader,
  };
  memcpy(record.total, arm->total, sizeof record.total);
  memcpy(record.rating, arm->rating, sizeof record.rating);
  if (arm->epochs > 0)
    policy_file_add_record(writer, &record);
}

void policy_file_add_table(struct policy_file_writer *writer, const struct policy_table *table, uint64_t site_min) {
  for (unsigned range = 0; range < POLICY_RANGES; range++) {
    add_arm(writer, &table->priors[range], POLICY_RECORD_PRIOR, 0, range);
    add_arm(writer, &table->rests[range], POLICY_RECORD_REST, 0, range);
  }
  for (size_t i = 0; i < (size_t)table->set_count * POLICY_WAYS; i++) {
    const struct policy_place *place = &table->places[i];
    if (place->taken && place->site >= site_min)
      add_arm(writer, &place->arm, POLICY_RECORD_SITE, place->site, place->range);
  }
}

void policy_file_add_fixed(struct policy_file_writer *writer, enum keep strategy) {
  struct policy_arm arm = {.leader = (uint8_t)strategy, .epochs = 1};
  for (unsigned other = 0; other < KEEP_STRATEGIES; other++)
    arm.rating[other] = other == strategy ? POLICY_RATING_MAX : -(POLICY_RATING_MAX / (int)(KEEP_STRATEGIES - 1));
  for (unsigned range = 0; range < POLICY_RANGES; range++) {
    add_arm(writer, &arm, POLICY_RECORD_PRIOR, 0, range);
    add_arm(writer, &arm, POLICY_RECORD_REST, 0, range);
  }
}

size_t policy_file_end(struct policy_file_writer *writer) {
  if (!writer->fits)
    return 0;
  put_number(writer->bytes + AT_MODULES, writer->module_count, 4);
  put_number(writer->bytes + AT_RECORDS, writer->record_count, 4);
  put_number(writer->bytes + writer->length, file_checksum(writer->bytes, writer->length), CHECKSUM_BYTES);
  return writer->length + CHECKSUM_BYTES;
}
