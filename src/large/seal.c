#include "large/seal.h"

#include "large/guarded.h"
#include "os/fault.h"

#include <string.h>

void seal_set(char *block, size_t bytes, size_t size) {
  uint32_t slack = (uint32_t)(bytes - size);
  uint64_t word = guarded_word(block + size);
  memcpy(block + size, &word, sizeof word);
  memcpy(block + bytes - sizeof slack, &slack, sizeof slack);
}

size_t seal_size(const char *block, size_t bytes) {
  uint32_t slack;
  uint64_t word;
  memcpy(&slack, block + bytes - sizeof slack, sizeof slack);
  if (slack < SEAL_BYTES || slack > bytes - SEALED_BYTES_MIN)
    return 0;
  memcpy(&word, block + bytes - slack, sizeof word);
  return word == guarded_word(block + bytes - slack) ? bytes - slack : 0;
}

void seal_check_is_zero(const char *block, const char *start, size_t bytes) {
  uint64_t any = 0, word;
  for (size_t i = 0; i < bytes; i += sizeof word) {
    memcpy(&word, start + i, sizeof word);
    any |= word;
  }
  if (any != 0)
    fault_written_after_free(block);
}

void seal_move(char *block, size_t bytes, size_t wanted, size_t size) {
  size_t before = seal_size(block, bytes);
  if (before == 0)
    fault_written_beyond(block);
  if (wanted > bytes)
    seal_check_is_zero(block, block + bytes, wanted - bytes);
  before = min_size(before, size);
  memset(block + before, 0, bytes - before);
  seal_set(block, wanted, max_size(size, SEALED_BYTES_MIN));
}
