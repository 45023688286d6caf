// Calls malloc only, and says whether that brought hakmem into the program.
#include <stdio.h>
#include <stdlib.h>

__attribute__((weak)) void *hak_malloc(size_t size);

int main(void) {
  void *volatile block = malloc(100);
  printf("%d\n", hak_malloc != NULL);
  free(block);
}
