/* gzip.h: writes a gzip stream without compression (RFC 1952 around stored blocks of RFC 1951) into a file in pieces,
 * which keeps the first error. It needs no memory but the struct.
 */
#pragma once

#include "base/words.h"
#include "inspect/file.h"

#define GZIP_BLOCK_HEAD_BYTES 5u
#define GZIP_BLOCK_BYTES ((size_t)32 << 10) /* the format allows 64 KiB - 1 */

struct gzip {
  struct os_file_part *file;
  uint32_t crc;    /* complement of the CRC of the blocks that are written */
  uint32_t length; /* of that, modulo 2^32 */
  size_t used;
  uint32_t crc_table[256];
  unsigned char block[GZIP_BLOCK_HEAD_BYTES + GZIP_BLOCK_BYTES]; /* not yet written */
};

void gzip_begin(struct gzip *gzip, struct os_file_part *file);
void gzip_add(struct gzip *gzip, const void *bytes, size_t length);
void gzip_end(struct gzip *gzip);
