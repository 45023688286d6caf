/* One thread, random calls of the whole family, every block compared with its shadow. */
#include "shadow.h"

#define LIVE_BYTES_MAX ((size_t)192 << 20)

static struct shadow shadow;
static size_t live_bytes;

static void block_free(uint32_t index) {
  struct shadow_record *record = &shadow.records[index];
  shadow_check(record);
  shadow_remove(&shadow, index);
  live_bytes -= record->usable;
  t_free(record->address);
  record->address = NULL;
}

static void block_make(uint32_t index, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index];
  const struct shadow_request request = shadow_draw(seed);
  CHECK(shadow_allocate(record, &request));
  shadow_insert(&shadow, index);
  live_bytes += record->usable;
}

static void block_resize(uint32_t index, uint64_t *seed) {
  struct shadow_record *record = &shadow.records[index];
  size_t size = shadow_size(seed);
  if (test_random(seed) % 4 == 0)
    size = record->size + test_random(seed) % 64;
  shadow_remove(&shadow, index);
  live_bytes -= record->usable;
  CHECK(shadow_resize(record, size ? size : 1, test_random(seed)));
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
}
