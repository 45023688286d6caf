/* mlockall: the kernel refuses to take locked pages back, so what was to be given back keeps its content. calloc
 * must not believe that it reads as zero. */
#include <sys/mman.h>

#include "again.h"

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_PURGE_DELAY_MS", "0", "HAKMEM_KEEP_MB", "0", "HAKMEM_HUGE", "off");
  test_skip_if(mlockall(MCL_CURRENT | MCL_FUTURE) != 0, "memory cannot be locked here");
  static const size_t sizes[] = {70000, 300000, 1000000, 5000000, 20000000, 40000000};
  for (int round = 0; round < 4; round++)
    for (size_t s = 0; s < sizeof sizes / sizeof sizes[0]; s++) {
      unsigned char *block = t_malloc(sizes[s]);
      test_skip_if(block == NULL, "not enough memory can be locked here");
      memset(block, 0xff, sizes[s]);
      t_free(block);
      if (round % 2)
        t_trim(0);
      block = CHECK_GOT(t_calloc(sizes[s], 1));
      CHECK_SAY(block[0] == 0 && memcmp(block, block + 1, sizes[s] - 1) == 0, "%zu bytes are not zero", sizes[s]);
      memset(block, 0xff, sizes[s]);
      t_free(block);
    }
}
