// Allocates by hakmem, and says whether malloc is hakmem's too.
#include <hakmem/hakmem.h>
#include <stdio.h>
#include <stdlib.h>

int main(void) {
  void *block = hak_malloc(100);
  void *other = malloc(100);
  printf("%d %d\n", hak_usable_size(block) >= 100, hak_usable_size(other) >= 100);
  hak_free(block);
  free(other);
}
