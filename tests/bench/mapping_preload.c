/* mapping_preload.c: a malloc whose every block is a mapping of its own, with a page without access behind it, so that
 * no two of them merge. Nothing is kept: what a benchmark must read of the process is known. */
#include <stddef.h>
#include <stdint.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

enum { HEADER = 16 };

static size_t mapped_bytes(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE);
  return (HEADER + size + page - 1) / page * page;
}

void *malloc(size_t size) {
  size_t page = (size_t)sysconf(_SC_PAGESIZE), bytes = mapped_bytes(size);
  char *mapping = mmap(NULL, bytes + page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (mapping == MAP_FAILED)
    return NULL;
  mprotect(mapping + bytes, page, PROT_NONE);
  memcpy(mapping, &size, sizeof size);
  return mapping + HEADER;
}

static size_t size_of(const void *block) {
  size_t size;
  memcpy(&size, (const char *)block - HEADER, sizeof size);
  return size;
}

void free(void *block) {
  if (block)
    munmap((char *)block - HEADER, mapped_bytes(size_of(block)) + (size_t)sysconf(_SC_PAGESIZE));
}

void *calloc(size_t count, size_t size) { return size && count > SIZE_MAX / 2 / size ? NULL : malloc(count * size); }

void *realloc(void *block, size_t size) {
  void *fresh = malloc(size);
  if (block && fresh) {
    memcpy(fresh, block, size < size_of(block) ? size : size_of(block));
    free(block);
  }
  return fresh;
}
