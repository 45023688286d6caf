/* A program that refers to what lives in libc's malloc.o, linked with libhakmem.a: it links (no name is
 * defined twice) and every part of the family is hakmem's. */
#pragma GCC diagnostic ignored "-Wdeprecated-declarations" /* mallinfo */
#include "../heap_api.h"

int main(int argc, char **argv) {
  test_begin(argc, argv);
  char *block = test_opaque(malloc(12345)), *copy = strdup("copied by libc");
  CHECK(block && copy);
  CHECK_SAY(hak_usable_size(block) >= 12345, "malloc is not hakmem's");
  CHECK_SAY(hak_usable_size(copy) >= 15, "libc's own calls do not come here");
  CHECK(malloc_usable_size(block) == hak_usable_size(block));
  free(copy);
  char *line = NULL;
  size_t capacity = 0;
  FILE *file = tmpfile();
  CHECK(file && fputs("some text\n", file) >= 0);
  rewind(file);
  CHECK(getline(&line, &capacity, file) == 10 && hak_usable_size(line) >= capacity);
  free(line);
  fclose(file);
#ifdef __GLIBC__
  CHECK(mallinfo().uordblks >= 12345);
  CHECK(mallinfo2().uordblks >= 12345);
  mallopt(M_TRIM_THRESHOLD, 1 << 20);
  malloc_trim(0);
  FILE *nowhere = fopen("/dev/null", "w");
  CHECK(nowhere && malloc_info(0, nowhere) == 0);
  fclose(nowhere);
  void *page = valloc(1);
  CHECK(hak_usable_size(page) > 0);
  free(page);
#endif
  free(block);
}
