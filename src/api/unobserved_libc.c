/* libc's names for statistics in a build without observers: they report the totals. */
#include "budget/usage.h"
#include "os/say.h"

#include <errno.h>
#include <malloc.h>
#include <stdio.h>

#ifdef __GLIBC__
EXPORT struct mallinfo2 mallinfo2(void) {
  size_t taken = usage_taken(), held_free = usage_free();
  return (struct mallinfo2){.arena = taken + held_free, .uordblks = taken, .fordblks = held_free};
}
#endif

EXPORT void malloc_stats(void) { os_say("hakmem: no statistics: built without observers\n"); }

EXPORT int malloc_info(int options, FILE *stream) {
  if (options != 0) {
    errno = EINVAL;
    return -1;
  }
  fprintf(stream, "<malloc version=\"1\" allocator=\"hakmem\">\n<total type=\"live\" size=\"%zu\"/>\n", usage_taken());
  fprintf(stream, "<total type=\"free\" size=\"%zu\"/>\n", usage_free());
  return fprintf(stream, "</malloc>\n") < 0 ? -1 : 0;
}
