#include "adapt/policy_file.h"

#include <string.h>

#define MARK "hakpol\r\n" /* a transfer as text would change the line ends */
#define CHECKSUM_BYTES 8u
#define HEAD_BYTES offsetof(struct policy_file, bytes)
#define RECORD_BYTES (offsetof(struct policy_record, nothing) + 1)
#if __BYTE_ORDER__ != __ORDER_LITTLE_ENDIAN__
#error "structs are read and written as they are"
#endif
_Static_assert(HEAD_BYTES == 128 && sizeof(struct policy_module) == 32 && RECORD_BYTES == 100, "as policy_file.h says");

const char *policy_file_words(enum policy_file_error error) {
  static const char *const words[] = {
      [POLICY_FILE_OK] = "in order",
      [POLICY_FILE_EMPTY] = "it is empty",
      [POLICY_FILE_DAMAGED] = "it is damaged",
      [POLICY_FILE_FOREIGN] = "it is not a policy file",
      [POLICY_FILE_NEWER] = "it was written by a later version",
      [POLICY_FILE_OTHER] = "it is about other strategies than this version's",
  };
  return words[error];
}

/* --- texts, the checksum --- */

static bool is_control(unsigned char c) { return c < ' ' || c == 127; }

/* Copies a text to a place that is zero. */
static void put_text(char *at, const char *text, unsigned bytes) {
  for (unsigned i = 0; i + 1 < bytes && text[i]; i++)
    at[i] = is_control((unsigned char)text[i]) ? '?' : text[i];
}

static bool is_text(const char *at, unsigned bytes) {
  unsigned length = 0;
  while (length < bytes && !is_control((unsigned char)at[length]))
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

static struct policy_file head_of(const struct policy_table_costs *costs) {
  struct policy_file head = {
      .version = POLICY_FILE_VERSION,
      .strategies = KEEP_STRATEGIES,
      .ranges = POLICY_RANGES,
      .range_first = POLICY_RANGE_FIRST,
      .epoch_events = POLICY_EPOCH_EVENTS,
      .costs = *costs,
  };
  memcpy(head.mark, MARK, sizeof head.mark);
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    head.delays_ms[strategy] = keep_delay_ms((enum keep)strategy);
  return head;
}

/* --- reading --- */

struct policy_module policy_file_module(const struct policy_file *file, uint32_t i) {
  struct policy_module module;
  memcpy(&module, file->bytes + HEAD_BYTES + i * sizeof module, sizeof module);
  return module;
}

struct policy_record policy_file_record(const struct policy_file *file, uint32_t i) {
  struct policy_record record = {0};
  size_t records_at = HEAD_BYTES + file->module_count * sizeof(struct policy_module);
  memcpy(&record, file->bytes + records_at + i * RECORD_BYTES, RECORD_BYTES);
  return record;
}

static bool record_is_sound(const struct policy_record *record) {
  bool sound = record->kind < POLICY_RECORD_KINDS && record->range < POLICY_RANGES &&
               record->leader < KEEP_STRATEGIES && record->nothing == 0;
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++)
    sound &= record->rating[strategy] <= POLICY_RATING_MAX && record->rating[strategy] >= -POLICY_RATING_MAX;
  return sound && (record->kind == POLICY_RECORD_SITE || record->site == 0);
}

static bool content_is_sound(const struct policy_file *file) {
  bool sound = is_text(file->writer, sizeof file->writer) && file->costs.mapping_range <= POLICY_RANGES;
  for (uint32_t i = 0; sound && i < file->module_count; i++) {
    struct policy_module module = policy_file_module(file, i);
    sound = module.tag != 0 && is_text(module.name, sizeof module.name);
  }
  for (uint32_t i = 0; sound && i < file->record_count; i++) {
    struct policy_record record = policy_file_record(file, i);
    sound = record_is_sound(&record);
  }
  return sound;
}

static bool has_our_strategies(const struct policy_file *file) {
  struct policy_file ours = head_of(&file->costs);
  return file->strategies == ours.strategies && file->ranges == ours.ranges && file->range_first == ours.range_first &&
         memcmp(file->delays_ms, ours.delays_ms, sizeof ours.delays_ms) == 0;
}

static bool checksum_is_right(const unsigned char *bytes, size_t length) {
  uint64_t checksum = file_checksum(bytes, length - CHECKSUM_BYTES);
  return memcmp(bytes + length - CHECKSUM_BYTES, &checksum, CHECKSUM_BYTES) == 0;
}

enum policy_file_error policy_file_open(struct policy_file *file, const void *bytes, size_t length) {
  struct policy_file found = {0};
  if (length == 0)
    return POLICY_FILE_EMPTY;
  memcpy(&found, bytes, min_size(length, HEAD_BYTES));
  found.bytes = bytes;
  if (memcmp(found.mark, MARK, min_size(length, sizeof found.mark)) != 0)
    return POLICY_FILE_FOREIGN;
  if (length < offsetof(struct policy_file, strategies) + CHECKSUM_BYTES || !checksum_is_right(bytes, length))
    return POLICY_FILE_DAMAGED;
  if (found.version > POLICY_FILE_VERSION)
    return POLICY_FILE_NEWER;
  if (found.version != POLICY_FILE_VERSION || length < HEAD_BYTES + CHECKSUM_BYTES)
    return POLICY_FILE_DAMAGED;
  if (!has_our_strategies(&found))
    return POLICY_FILE_OTHER;
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
  return HEAD_BYTES + module_count * sizeof(struct policy_module) + record_count * RECORD_BYTES + CHECKSUM_BYTES;
}

static void put_bytes(struct policy_file_writer *writer, const void *bytes, size_t length) {
  writer->fits = writer->fits && length + CHECKSUM_BYTES <= writer->capacity - writer->length;
  if (!writer->fits)
    return;
  memcpy(writer->bytes + writer->length, bytes, length);
  writer->length += length;
}

void policy_file_begin(struct policy_file_writer *writer, void *bytes, size_t capacity,
                       const struct policy_table_costs *costs, const char *by) {
  *writer = (struct policy_file_writer){.head = head_of(costs), .bytes = bytes, .capacity = capacity, .fits = true};
  put_text(writer->head.writer, by, sizeof writer->head.writer);
  put_bytes(writer, &writer->head, HEAD_BYTES); /* policy_file_end writes it again, with the counts */
}

void policy_file_add_module(struct policy_file_writer *writer, uint32_t tag, const char *name) {
  struct policy_module module = {.tag = tag};
  put_text(module.name, name, sizeof module.name);
  writer->fits &= writer->head.record_count == 0;
  put_bytes(writer, &module, sizeof module);
  writer->head.module_count++;
}

void policy_file_add_record(struct policy_file_writer *writer, const struct policy_record *record) {
  put_bytes(writer, record, RECORD_BYTES);
  writer->head.record_count++;
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
  memcpy(writer->bytes, &writer->head, HEAD_BYTES);
  uint64_t checksum = file_checksum(writer->bytes, writer->length);
  memcpy(writer->bytes + writer->length, &checksum, CHECKSUM_BYTES);
  return writer->length + CHECKSUM_BYTES;
}
