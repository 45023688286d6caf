#include "os/kernel.h"

#include "base/words.h"

#include <stdarg.h>

#define ERRNO_MAX 4095

#if defined(__x86_64__)
static inline long enter_kernel(long number, const long *a) {
  long result;
  register long r10 __asm__("r10") = a[3];
  register long r8 __asm__("r8") = a[4];
  register long r9 __asm__("r9") = a[5];
  __asm__ volatile("syscall"
                   : "=a"(result)
                   : "0"(number), "D"(a[0]), "S"(a[1]), "d"(a[2]), "r"(r10), "r"(r8), "r"(r9)
                   : "rcx", "r11", "memory");
  return result;
}
#elif defined(__aarch64__)
static inline long enter_kernel(long number, const long *a) {
  register long x8 __asm__("x8") = number;
  register long x0 __asm__("x0") = a[0];
  register long x1 __asm__("x1") = a[1];
  register long x2 __asm__("x2") = a[2];
  register long x3 __asm__("x3") = a[3];
  register long x4 __asm__("x4") = a[4];
  register long x5 __asm__("x5") = a[5];
  __asm__ volatile("svc #0" : "+r"(x0) : "r"(x8), "r"(x1), "r"(x2), "r"(x3), "r"(x4), "r"(x5) : "memory");
  return x0;
}
#endif

/* Missing arguments are passed on with whatever value is there. The kernel ignores them; AddressSanitizer must too. */
COLD __attribute__((no_sanitize("address"))) long os_kernel(long number, ...) {
  long arguments[6];
  va_list list;
  va_start(list, number);
  for (unsigned i = 0; i < sizeof arguments / sizeof *arguments; i++)
    arguments[i] = va_arg(list, long);
  va_end(list);
  long result = enter_kernel(number, arguments);
  if (result >= 0 || result < -ERRNO_MAX)
    return result;
  errno = (int)-result;
  return -1;
}
