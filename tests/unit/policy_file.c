/* policy_file: what is written is read again, byte for byte the same; each changed bit, each missing or added byte is
 * noticed, and so is what is wrong in a file whose checksum is right; foreign, newer and other files are told apart. */
#include "unit.h"

#include "adapt/policy_file.h"

#define SMALL_ARMS 16u
#define FILE_BYTES ((size_t)64 << 10)
#define SITE_MIN ((uint64_t)1 << 40)

/* Of the format, as policy_file.h draws it. */
#define HEAD_BYTES 128u
#define MODULE_BYTES 32u
#define CHECKSUM_BYTES 8u

/* Judges a file; a control is given another one. */
typedef enum policy_file_error judge(struct policy_file *file, const void *bytes, size_t length);

static struct policy_table_costs c;

struct fixture {
  struct policy_table table;
  void *places;
  unsigned char bytes[FILE_BYTES];
  size_t length;
};

static void table_begin(struct fixture *f) {
  f->places = calloc(1, policy_table_bytes(SMALL_ARMS));
  assert_non_null(f->places);
  policy_table_begin(&f->table, f->places, SMALL_ARMS, &c, KEEP_1S);
}

static void write_table(struct fixture *f) {
  struct policy_file_writer writer;
  policy_file_begin(&writer, f->bytes, sizeof f->bytes, &c, "hakmem 1.2.3");
  policy_file_add_module(&writer, 0xabcdef, "libfirst.so.1");
  policy_file_add_module(&writer, 0x123456, "a name that is too long for its place, and \n ends");
  policy_file_add_table(&writer, &f->table, SITE_MIN);
  f->length = policy_file_end(&writer);
  assert_int_equal(f->length, policy_file_bytes(writer.head.module_count, writer.head.record_count));
}

/* Sites of several tempers, more than have a place, and one that means nothing elsewhere. */
static struct fixture *learned(void) {
  struct fixture *f = UNIT_GOT(calloc(1, sizeof *f));
  table_begin(f);
  uint32_t now_ms = 0;
  for (unsigned i = 0; i < 4000; i++) {
    uint64_t number = i % 20;
    uint64_t site = number == 0 ? 77 : (uint64_t)(number % 3 + 1) << 40 | number;
    policy_table_freed(&f->table, site, (unsigned)number % 4, 100, true, now_ms);
    now_ms += number % 4 == 1 ? 2000 : 1;
    policy_table_taken(&f->table, site, (unsigned)number % 4, 100, now_ms);
  }
  write_table(f);
  return f;
}

static void end(struct fixture *f) {
  free(f->places);
  free(f);
}

static void same_rating(const struct policy_arm *arm, const struct policy_record *record) {
  assert_memory_equal(arm->rating, record->rating, sizeof arm->rating);
  assert_int_equal(arm->leader, record->leader);
}

static const struct policy_arm *arm_of(const struct policy_table *table, const struct policy_record *record) {
  if (record->kind != POLICY_RECORD_SITE)
    return record->kind == POLICY_RECORD_PRIOR ? &table->priors[record->range] : &table->rests[record->range];
  for (uint32_t i = 0; i < table->set_count * POLICY_WAYS; i++)
    if (table->places[i].taken && table->places[i].site == record->site && table->places[i].range == record->range)
      return &table->places[i].arm;
  return NULL;
}

UNIT_TEST(what_is_written_is_read) {
  struct fixture *f = learned(), *again = calloc(1, sizeof *again);
  struct policy_file file;
  assert_int_equal(policy_file_open(&file, f->bytes, f->length), POLICY_FILE_OK);
  assert_string_equal(file.writer, "hakmem 1.2.3");
  assert_int_equal(file.epoch_events, POLICY_EPOCH_EVENTS);
  assert_memory_equal(&file.costs.part, &c.part, sizeof c.part);
  assert_memory_equal(&file.costs.mapping, &c.mapping, sizeof c.mapping);
  assert_int_equal(file.costs.mapping_range, c.mapping_range);
  assert_int_equal(file.module_count, 2);
  assert_int_equal(policy_file_module(&file, 0).tag, 0xabcdef);
  assert_string_equal(policy_file_module(&file, 0).name, "libfirst.so.1");
  assert_string_equal(policy_file_module(&file, 1).name, "a name that is too long for");
  unsigned of_kind[POLICY_RECORD_KINDS] = {0};
  for (uint32_t i = 0; i < file.record_count; i++) {
    struct policy_record record = policy_file_record(&file, i);
    const struct policy_arm *arm = UNIT_GOT(arm_of(&f->table, &record));
    same_rating(arm, &record);
    assert_memory_equal(arm->total, record.total, sizeof record.total);
    assert_int_equal(arm->total_acted, record.total_acted);
    assert_int_equal(arm->epochs, record.epochs);
    assert_int_equal(arm->switches, record.switches);
    of_kind[record.kind]++;
    assert_true(record.kind != POLICY_RECORD_SITE || record.site >= SITE_MIN);
  }
  assert_int_equal(of_kind[POLICY_RECORD_PRIOR], 4);
  assert_in_range(of_kind[POLICY_RECORD_REST], 1, 4);
  assert_in_range(of_kind[POLICY_RECORD_SITE], SMALL_ARMS - 1, SMALL_ARMS);

  /* Applied, all of it has its place, and decides at once. */
  table_begin(again);
  policy_file_merge(&file, &again->table);
  for (uint32_t i = 0; i < file.record_count; i++) {
    struct policy_record record = policy_file_record(&file, i);
    const struct policy_arm *arm = UNIT_GOT(arm_of(&again->table, &record));
    same_rating(arm, &record);
    assert_int_equal(arm->total_acted, 0);
    if (record.kind == POLICY_RECORD_SITE)
      assert_int_equal(policy_table_leader(&again->table, record.site, record.range), record.leader);
  }

  /* And written again, as far as ratings go, it is the same. */
  write_table(again);
  struct policy_file second;
  assert_int_equal(policy_file_open(&second, again->bytes, again->length), POLICY_FILE_OK);
  assert_int_equal(second.record_count, file.record_count);
  for (uint32_t i = 0; i < second.record_count; i++) {
    struct policy_record record = policy_file_record(&second, i);
    same_rating(arm_of(&f->table, &record), &record);
  }
  end(f);
  end(again);
}

UNIT_TEST(a_full_table_takes_what_fits) {
  struct fixture *f = learned(), *small = calloc(1, sizeof *small);
  small->places = calloc(1, policy_table_bytes(POLICY_WAYS));
  policy_table_begin(&small->table, small->places, POLICY_WAYS, &c, KEEP_1S);
  struct policy_file file;
  assert_int_equal(policy_file_open(&file, f->bytes, f->length), POLICY_FILE_OK);
  policy_file_merge(&file, &small->table);
  assert_int_equal(small->table.taken_count, POLICY_WAYS);
  end(f);
  end(small);
}

static bool is_noticed(judge *open, const unsigned char *bytes, size_t length) {
  struct policy_file file = {.bytes = NULL};
  enum policy_file_error error = open(&file, bytes, length);
  enum policy_file_error cut = length > 0 ? POLICY_FILE_DAMAGED : POLICY_FILE_EMPTY;
  return (error == cut || error == POLICY_FILE_FOREIGN) && file.bytes == NULL;
}

/* The faults that go unnoticed: of each bit, each length below, and added bytes. */
static unsigned unnoticed_bits(judge *open, struct fixture *f) {
  unsigned unnoticed = 0;
  for (size_t at = 0; at < f->length; at++)
    for (unsigned bit = 0; bit < 8; bit++) {
      f->bytes[at] ^= (unsigned char)(1u << bit);
      unnoticed += !is_noticed(open, f->bytes, f->length);
      f->bytes[at] ^= (unsigned char)(1u << bit);
    }
  return unnoticed;
}

static unsigned unnoticed_bytes(judge *open, struct fixture *f) {
  unsigned unnoticed = 0;
  for (size_t at = 0; at < f->length; at++) {
    f->bytes[at] ^= 0xff;
    unnoticed += !is_noticed(open, f->bytes, f->length);
    f->bytes[at] ^= 0xff;
  }
  return unnoticed;
}

static unsigned unnoticed_lengths(judge *open, struct fixture *f) {
  unsigned unnoticed = 0;
  for (size_t length = 0; length < f->length; length++)
    unnoticed += !is_noticed(open, f->bytes, length);
  for (size_t added = 1; added < 300; added++)
    unnoticed += !is_noticed(open, f->bytes, f->length + added);
  return unnoticed;
}

/* The control: it only looks at the mark and the counts. */
static enum policy_file_error careless(struct policy_file *file, const void *bytes, size_t length) {
  uint32_t counts[2];
  if (length < HEAD_BYTES || memcmp(bytes, "hakpol\r\n", 8) != 0)
    return POLICY_FILE_FOREIGN;
  memcpy(counts, (const char *)bytes + 28, sizeof counts);
  if (policy_file_bytes(counts[0], counts[1]) > length)
    return POLICY_FILE_DAMAGED;
  file->bytes = bytes;
  return POLICY_FILE_OK;
}

UNIT_TEST(each_fault_is_noticed) {
  struct fixture *f = learned();
  assert_int_equal(unnoticed_bits(policy_file_open, f), 0);
  assert_int_equal(unnoticed_bytes(policy_file_open, f), 0);
  assert_int_equal(unnoticed_lengths(policy_file_open, f), 0);
  assert_true(unnoticed_bits(careless, f) > 1000);
  assert_true(unnoticed_bytes(careless, f) > 100);
  assert_true(unnoticed_lengths(careless, f) > 100);
  struct policy_file file;
  assert_int_equal(policy_file_open(&file, f->bytes, f->length), POLICY_FILE_OK);
  end(f);
}

/* A checksum made another way: bit by bit, as the polynomial is written in ECMA-182. */
static uint64_t reversed(uint64_t value, unsigned bits) {
  uint64_t result = 0;
  for (unsigned i = 0; i < bits; i++)
    result |= (value >> i & 1) << (bits - 1 - i);
  return result;
}

static uint64_t checksum(const unsigned char *bytes, size_t length) {
  uint64_t crc = UINT64_MAX;
  for (size_t i = 0; i < length; i++) {
    crc ^= reversed(bytes[i], 8) << 56;
    for (unsigned bit = 0; bit < 8; bit++)
      crc = crc << 1 ^ (crc >> 63 ? 0x42f0e1eba9ea3693u : 0);
  }
  return ~reversed(crc, 64);
}

static void seal(struct fixture *f) {
  uint64_t sum = checksum(f->bytes, f->length - CHECKSUM_BYTES);
  memcpy(f->bytes + f->length - CHECKSUM_BYTES, &sum, sizeof sum);
}

static enum policy_file_error judged(const struct fixture *f) {
  struct policy_file file;
  return policy_file_open(&file, f->bytes, f->length);
}

/* Bytes of a sealed file are set; what is said of it, and that the bytes before are in order. */
static enum policy_file_error with(struct fixture *f, size_t at, const void *value, size_t bytes) {
  unsigned char kept[64];
  memcpy(kept, f->bytes + at, bytes);
  memcpy(f->bytes + at, value, bytes);
  seal(f);
  enum policy_file_error error = judged(f);
  memcpy(f->bytes + at, kept, bytes);
  seal(f);
  assert_int_equal(judged(f), POLICY_FILE_OK);
  return error;
}

static enum policy_file_error with32(struct fixture *f, size_t at, uint32_t value) { return with(f, at, &value, 4); }

UNIT_TEST(a_right_checksum_does_not_suffice) {
  assert_int_equal(checksum((const unsigned char *)"123456789", 9), 0x995dc9bbdf1939fau); /* known, of CRC-64/XZ */
  struct fixture *f = learned();
  size_t module = HEAD_BYTES, record = HEAD_BYTES + 2 * MODULE_BYTES, rating = record + 64, kind = record + 96;
  assert_int_equal(with32(f, 8, POLICY_FILE_VERSION), POLICY_FILE_OK);
  assert_int_equal(with32(f, 8, POLICY_FILE_VERSION + 1), POLICY_FILE_NEWER);
  assert_int_equal(with32(f, 8, UINT32_MAX), POLICY_FILE_NEWER);
  assert_int_equal(with32(f, 8, 0), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, 12, KEEP_STRATEGIES + 1), POLICY_FILE_OTHER);
  assert_int_equal(with32(f, 16, POLICY_RANGES - 1), POLICY_FILE_OTHER);
  assert_int_equal(with32(f, 20, POLICY_RANGE_FIRST + 1), POLICY_FILE_OTHER);
  assert_int_equal(with32(f, 72 + 4 * KEEP_1S, 1001), POLICY_FILE_OTHER);
  assert_int_equal(with32(f, 28, 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, 28, UINT32_MAX), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, 32, UINT32_MAX), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, 36, POLICY_RANGES + 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, module, 0), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, module + 4, "\033[2J", 4), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, module + 4, "12345678901234567890123456789", POLICY_FILE_NAME_BYTES), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, 96, "12345678901234567890123456789012", POLICY_FILE_WRITER_BYTES), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, rating, (uint32_t)POLICY_RATING_MAX), POLICY_FILE_OK);
  assert_int_equal(with32(f, rating, (uint32_t)POLICY_RATING_MAX + 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, rating, (uint32_t)-POLICY_RATING_MAX - 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with32(f, rating, (uint32_t)INT32_MIN), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, kind, "\x03", 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, kind + 1, "\x20", 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, kind + 2, "\x06", 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, kind + 3, "\x01", 1), POLICY_FILE_DAMAGED);
  assert_int_equal(with(f, record, "\x01", 1), POLICY_FILE_DAMAGED); /* a prior of one site */
  end(f);
}

/* Most random bytes fail at the mark; so the mark is right half of the time, and often the checksum. */
UNIT_TEST(random_bytes_are_refused) {
  uint64_t random = UNIT_SEED;
  struct fixture *f = calloc(1, sizeof *f);
  for (unsigned i = 0; i < 20000; i++) {
    f->length = 20 + test_random(&random) % 700;
    for (size_t at = 0; at < f->length; at++)
      f->bytes[at] = (unsigned char)test_random(&random);
    if (i % 2)
      memcpy(f->bytes, "hakpol\r\n\1\0\0\0\6\0\0\0\40\0\0\0\4\0\0", 23);
    if (i % 4 > 1)
      seal(f);
    assert_true(judged(f) != POLICY_FILE_OK);
  }
  end(f);
}

UNIT_TEST(what_is_no_policy_file_is_foreign) {
  struct fixture *f = calloc(1, sizeof *f);
  static const char *const texts[] = {"a\n", "hakmem", "Dear diary, today I lost my policy file.\n", "\177ELF"};
  for (unsigned i = 0; i < sizeof texts / sizeof *texts; i++) {
    f->length = strlen(texts[i]);
    memcpy(f->bytes, texts[i], f->length);
    assert_int_equal(judged(f), POLICY_FILE_FOREIGN);
  }
  f->length = 0;
  assert_int_equal(judged(f), POLICY_FILE_EMPTY);
  f->length = 5;
  memcpy(f->bytes, "hakpo", 5);
  assert_int_equal(judged(f), POLICY_FILE_DAMAGED);
  end(f);
}

UNIT_TEST(what_does_not_fit_is_not_written) {
  struct fixture *f = learned();
  struct policy_file_writer writer;
  size_t whole = f->length;
  for (size_t capacity = 0; capacity <= whole; capacity++) {
    memset(f->bytes, 0xaa, sizeof f->bytes);
    policy_file_begin(&writer, f->bytes, capacity, &c, "hakmem");
    policy_file_add_module(&writer, 1, "a");
    policy_file_add_module(&writer, 2, "b");
    policy_file_add_table(&writer, &f->table, SITE_MIN);
    assert_int_equal(policy_file_end(&writer), capacity < whole ? 0 : whole);
    assert_int_equal(f->bytes[capacity], 0xaa);
  }
  struct policy_record record = {.leader = 1};
  policy_file_begin(&writer, f->bytes, sizeof f->bytes, &c, "hakmem");
  policy_file_add_record(&writer, &record);
  policy_file_add_module(&writer, 1, "too late");
  assert_int_equal(policy_file_end(&writer), 0);
  end(f);
}

UNIT_TEST(a_fixed_file_has_one_leader) {
  for (unsigned strategy = 0; strategy < KEEP_STRATEGIES; strategy++) {
    struct fixture *f = calloc(1, sizeof *f);
    struct policy_file_writer writer;
    struct policy_file file;
    policy_file_begin(&writer, f->bytes, sizeof f->bytes, &c, "hakmem");
    policy_file_add_fixed(&writer, (enum keep)strategy);
    f->length = policy_file_end(&writer);
    assert_int_equal(policy_file_open(&file, f->bytes, f->length), POLICY_FILE_OK);
    table_begin(f);
    policy_file_merge(&file, &f->table);
    assert_int_equal(f->table.taken_count, 0);
    for (unsigned range = 0; range < POLICY_RANGES; range++) {
      int64_t sum = 0;
      for (unsigned other = 0; other < KEEP_STRATEGIES; other++)
        sum += f->table.priors[range].rating[other];
      assert_int_equal(sum, 0);
      assert_int_equal(policy_table_leader(&f->table, SITE_MIN + 5, range), strategy);
    }
    end(f);
  }
}

UNIT_MAIN((c = (struct policy_table_costs){21, policy_costs_of(500, 60, 800, 1000),
                                           policy_costs_of(500, 60, 3300, 1000)}))
