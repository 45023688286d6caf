/* A library for LD_AUDIT that is linked with hakmem. The loader gives it a namespace of its own, without the
 * program. */
#include "hakmem/hakmem.h"

#include <unistd.h>

__attribute__((visibility("default"))) unsigned la_version(unsigned version);

unsigned la_version(unsigned version) {
  void *block = hak_malloc(100);
  if (block != NULL && write(STDOUT_FILENO, "audited", 7) != 7)
    _exit(1);
  hak_free(block);
  return version;
}
