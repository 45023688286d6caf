/* The live page of a process: as it is, and with mark, lengths, process id and checksum put right. */
#include "fuzz.h"

#include "tools/live_read.h"

static void look(const struct live_process *process) {
  for (uint32_t i = 0; i < process->head.table_count; i++) {
    const struct live_table *table = &process->head.tables[i];
    struct live_rows rows = live_table(process, table->name);
    CHECK(rows.table && rows.count <= rows.table->rows_max);
    for (uint32_t column = 0; column < rows.columns && column < 8; column++) {
      const char *name = live_column_name(process, rows.table, column);
      if (rows.count > 0)
        live_value(process, &rows, rows.count - 1, name);
      live_value(process, &rows, rows.count, name);
    }
  }
  live_total(process, "mapped_bytes");
  live_age_s(process);
}

static void read_page(const void *bytes, size_t length) {
  struct live_process process;
  struct fuzz_file file = fuzz_file(LIVE_FILE_NAME, bytes, length);
  CHECK(fcntl(file.fd, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW) == 0);
  if (live_open(&process, getpid())) {
    if (live_take(&process, 0))
      look(&process);
    live_close(&process);
  }
  close(file.fd);
}

static void mend(uint8_t *bytes, size_t length) {
  struct live_head head;
  if (length < sizeof head)
    return;
  memcpy(&head, bytes, sizeof head);
  memcpy(head.mark, LIVE_MARK, sizeof head.mark);
  head.layout = LIVE_LAYOUT;
  head.page_bytes = (uint32_t)length;
  head.pid = (uint64_t)getpid();
  memcpy(bytes, &head, sizeof head);
  uint64_t k = live_snapshot_of(atomic_load(&head.sequence)), sum = 0, word;
  size_t slot = head.slot_at[k % 2], words = head.slot_words;
  if (slot < sizeof head || words < LIVE_HEADER_WORDS || slot > length || words > (length - slot) / sizeof word)
    return;
  memcpy(bytes + slot + LIVE_NUMBER * sizeof word, &k, sizeof k);
  for (size_t i = 1; i < words; i++) {
    memcpy(&word, bytes + slot + i * sizeof word, sizeof word);
    sum = live_checksum_on(sum, word);
  }
  memcpy(bytes + slot, &sum, sizeof sum);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  fuzz_both(data, size, read_page, mend);
  return 0;
}
