/* One thread, random calls of the whole family, every block compared with its shadow. */
#include "shadow.h"

#define LIVE_BYTES_MAX ((size_t)192 << 20)

static struct shadow shadow;
static size_t live_bytes;

static void block_check(uint32_t index) {
  struct shadow_record *record = &shadow.records[index];
  CHECK_SAY(t_usable_size(record->address) == record->usable, "usable size of a block of %zu changed", record->size);
  shadow_verify(record, record->address, record->usable);
}

static void block_free(uint32_t index) {
  struct shadow_record *record = &shadow.records[index];
  block_check(index);
  shadow_remove(&shadow, index);
  live_bytes -= record->usable;
  t_free(record->address);
  record->address = NULL;
}

static void block_make(uint32_t index, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index];
  CHECK(shadow_allocate(record, seed));
  shadow_insert(&shadow, index);
  live_bytes += record->usable;
}

static void block_resize(uint32_t index, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index], before = *record;
  size_t size = shadow_size(seed);
  if (test_random(seed) % 4 == 0)
    size = before.size + test_random(seed) % 64;
  if (size == 0)
    size = 1;
  block_check(index);
  shadow_remove(&shadow, index);
  live_bytes -= before.usable;
  unsigned char *block = t_realloc(before.address, size);
  CHECK(block != NULL);
  CHECK((uintptr_t)block % 16 == 0 || size < 16);
  shadow_verify(&before, block, before.size < size ? before.size : size);
  record->address = block;
  record->size = size;
  record->usable = t_usable_size(block);
  CHECK(record->usable >= size);
  record->tag = test_random(seed);
  shadow_fill(record);
  shadow_insert(&shadow, index);
  live_bytes += record->usable;
}

static void model_run(uint64_t seed, long operations, uint32_t slots) {
  for (long i = 0; i < operations; i++) {
    uint32_t index = (uint32_t)(test_random(&seed) % slots);
    struct shadow_record *record = &shadow.records[index];
    if (!record->address) {
      if (live_bytes < LIVE_BYTES_MAX)
        block_make(index, &seed);
    } else if (live_bytes < LIVE_BYTES_MAX && test_random(&seed) % 4 == 0) {
      block_resize(index, &seed);
    } else {
      block_free(index);
    }
    if (test_random(&seed) % 20000 == 0)
      t_trim(0);
  }
  for (uint32_t index = 0; index < slots; index++) {
    if (shadow.records[index].address)
      block_free(index);
  }
  CHECK(live_bytes == 0 && shadow.root == 0);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  static const uint32_t slots[] = {16, 400, 3000, SHADOW_RECORDS};
  for (uint64_t i = 0; i < 8; i++) {
    model_run(test_seed + i, test_rounds(30000, 30), slots[i % 4]);
  }
  puts("model_single: ok");
  return 0;
}
