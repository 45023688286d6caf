/* Large blocks that lie far from each other cost few pages and little address space beside their own: other mappings
 * lie between them, or, with an argument, they are a GiB long each and hardly used. */
#include <sys/mman.h>

#include "../heap_api.h"

#define BLOCKS 1500
#define RESIDENT_KIB_EACH 24
#define MAPPED_KIB_EACH 160

static char *blocks[BLOCKS];
static void *between[BLOCKS];
static size_t block_bytes = 40 * MIB, between_bytes = (size_t)1 << 30;

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer has pages of its own for each");
  if (argc > 1) {
    block_bytes = (size_t)1 << 30;
    between_bytes = 4096;
  }
  t_free(t_malloc(block_bytes));
  long resident_kib = test_rss_kib(), mapped_kib = test_status("VmSize:");
  for (int i = 0; i < BLOCKS; i++) {
    blocks[i] = t_malloc(block_bytes);
    between[i] = mmap(NULL, between_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    test_skip_if(blocks[i] == NULL || between[i] == MAP_FAILED, "the system has too little address space");
  }
  resident_kib = test_rss_kib() - resident_kib;
  mapped_kib = test_status("VmSize:") - mapped_kib - BLOCKS * (long)((block_bytes + between_bytes) / 1024);
  CHECK_SAY(resident_kib < BLOCKS * RESIDENT_KIB_EACH, "%ld KiB resident for %d blocks", resident_kib, BLOCKS);
  CHECK_SAY(mapped_kib < BLOCKS * MAPPED_KIB_EACH, "%ld KiB of address space for %d blocks", mapped_kib, BLOCKS);
  for (int i = 0; i < BLOCKS; i++) {
    CHECK(t_usable_size(blocks[i]) >= block_bytes);
    t_free(blocks[i]);
    munmap(between[i], between_bytes);
  }
  printf("far apart: ok (%ld KiB resident, %ld MiB mapped beside)\n", resident_kib, mapped_kib / 1024);
}
