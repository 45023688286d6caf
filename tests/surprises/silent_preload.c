/* Keeps refusals of huge pages from the kernel: the control of huge_pages.py. */
#include <stddef.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

int madvise(void *address, size_t size, int advice);
int madvise(void *address, size_t size, int advice) {
  return advice == MADV_NOHUGEPAGE ? 0 : (int)syscall(SYS_madvise, address, size, advice);
}
