#include "profile/gzip.h"

#include <string.h>

#define CRC_POLYNOMIAL 0xedb88320u /* of CRC-32, bits reversed */

void gzip_begin(struct gzip *gzip, struct os_file_part *file) {
  /* deflate, no flags, no time, no compression level, Unix */
  static const unsigned char head[] = {0x1f, 0x8b, 8, 0, 0, 0, 0, 0, 0, 3};
  gzip->file = file;
  gzip->crc = UINT32_MAX;
  gzip->length = 0;
  gzip->used = 0;
  for (uint32_t byte = 0; byte < 256; byte++) {
    uint32_t crc = byte;
    for (unsigned bit = 0; bit < 8; bit++)
      crc = crc >> 1 ^ (crc & 1 ? CRC_POLYNOMIAL : 0);
    gzip->crc_table[byte] = crc;
  }
  os_file_add(file, head, sizeof head);
}

static void put_block(struct gzip *gzip, bool is_last) {
  const uint16_t lengths[] = {(uint16_t)gzip->used, (uint16_t)~gzip->used};
  gzip->block[0] = is_last;
  memcpy(gzip->block + 1, lengths, sizeof lengths);
  os_file_add(gzip->file, gzip->block, GZIP_BLOCK_HEAD_BYTES + gzip->used);
  for (const unsigned char *at = gzip->block + GZIP_BLOCK_HEAD_BYTES, *end = at + gzip->used; at < end; at++)
    gzip->crc = gzip->crc >> 8 ^ gzip->crc_table[(gzip->crc ^ *at) & 0xff];
  gzip->length += (uint32_t)gzip->used;
  gzip->used = 0;
}

void gzip_add(struct gzip *gzip, const void *bytes, size_t length) {
  const unsigned char *at = bytes;
  while (length > 0) {
    if (gzip->used == GZIP_BLOCK_BYTES)
      put_block(gzip, false);
    size_t step = min_size(length, GZIP_BLOCK_BYTES - gzip->used);
    memcpy(gzip->block + GZIP_BLOCK_HEAD_BYTES + gzip->used, at, step);
    gzip->used += step;
    at += step;
    length -= step;
  }
}

void gzip_end(struct gzip *gzip) {
  put_block(gzip, true);
  const uint32_t end[] = {~gzip->crc, gzip->length};
  os_file_add(gzip->file, end, sizeof end);
}
