/* statically.c: a plugin that has hakmem in itself, linked statically. */
#include "hakmem/hakmem.h"

#include <string.h>

#define BLOCKS 400
#define BYTES (100 * 1024)

/* Holds and frees so much that hakmem's thread starts. */
__attribute__((visibility("default"))) int plugin_use(void) {
  static void *blocks[BLOCKS];
  for (int round = 0; round < 2; round++) {
    for (int i = 0; i < BLOCKS; i++)
      if ((blocks[i] = hak_malloc(BYTES)) == NULL)
        return 0;
      else
        memset(blocks[i], 1, BYTES);
    for (int i = 0; i < BLOCKS; i++)
      hak_free(blocks[i]);
  }
  return 1;
}
