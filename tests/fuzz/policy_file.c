/* The policy file: as it is, and with its checksum put right. Whatever opens is read, applied, merged, written
 * again. */
#include "fuzz.h"

#include "adapt/policy_file.h"

static void mend(uint8_t *bytes, size_t length) {
  if (length < 8)
    return;
  uint64_t crc = UINT64_MAX;
  for (size_t i = 0; i < length - 8; i++) {
    crc ^= bytes[i];
    for (unsigned bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? 0xc96c5795d7870f42u : 0);
  }
  crc = ~crc;
  memcpy(bytes + length - 8, &crc, 8);
}

static void read_file(const void *bytes, size_t length) {
  enum { ARMS = 16 }; /* so few that sets overflow */
  static struct policy_table table;
  static struct policy_place places[64];
  static unsigned char written[1 << 20];
  struct policy_file file, again;
  if (policy_file_open(&file, bytes, length) != POLICY_FILE_OK)
    return;
  for (uint32_t i = 0; i < file.module_count; i++) {
    struct policy_module module = policy_file_module(&file, i);
    CHECK(module.tag != 0 && memchr(module.name, 0, sizeof module.name));
  }
  for (uint32_t i = 0; i < file.record_count; i++) {
    struct policy_record record = policy_file_record(&file, i);
    CHECK(record.kind < POLICY_RECORD_KINDS && record.range < POLICY_RANGES && record.leader < KEEP_STRATEGIES);
  }
  memset(places, 0, sizeof places);
  CHECK(policy_table_bytes(ARMS) <= sizeof places);
  policy_table_begin(&table, places, ARMS, &file.costs, (enum keep)0);
  policy_file_merge(&file, &table);
  policy_file_merge(&file, &table);
  struct policy_file_writer writer;
  policy_file_begin(&writer, written, sizeof written, &file.costs, file.writer);
  policy_file_add_table(&writer, &table, 0);
  size_t end = policy_file_end(&writer);
  CHECK(end == 0 || policy_file_open(&again, written, end) == POLICY_FILE_OK);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_both(data, size, read_file, mend);
  return 0;
}
