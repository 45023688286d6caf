/* A seccomp filter may kill the process for any system call that libc's malloc does not make. So hakmem reads what it
 * has to read before the program installs a filter, and makes only memory calls afterwards (os/filter.h). Programs
 * install filters by prctl, by syscall, or by libseccomp, which calls syscall. Code that enters the kernel by an
 * instruction of its own is not noticed. */
#include "api/next.h"
#include "budget/usage.h"
#include "os/filter.h"
#include "reclaim/background.h"

#include <errno.h>
#include <linux/seccomp.h>
#include <stdarg.h>
#include <sys/prctl.h>
#include <sys/syscall.h>

typedef int prctl_function(int what, ...);
/* On both architectures the number and five arguments are in registers. The sixth is in a register too, or on the
 * stack, where a jump leaves it. */
#if defined(__x86_64__)
#define SIXTH_PARAMETER
#define SIXTH_ARGUMENT
#else
#define SIXTH_PARAMETER , long f
#define SIXTH_ARGUMENT , f
#endif
typedef long syscall_function(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER);

/* A program that only asks whether filters are supported passes no filter, or flags that do not exist. */
static bool is_filter_by_prctl(long what, long mode, long filter) {
  return what == PR_SET_SECCOMP && (mode == SECCOMP_MODE_STRICT || filter != 0);
}
static bool is_filter_by_seccomp(long operation, long flags, long filter) {
  return operation == SECCOMP_SET_MODE_STRICT ? flags == 0 : operation == SECCOMP_SET_MODE_FILTER && filter != 0;
}

/* Prepares for a filter. True if it is the first one. */
static bool filter_prepare(void) {
  KEEP_ERRNO;
  usage_look_ahead();
  background_stop_for_good();
  return os_filter_comes();
}

static void filter_withdraw(void) {
  os_filter_refused();
  background_resume();
}

EXPORT int control_call(int what, ...) __asm__("prctl");

int control_call(int what, ...) {
  long a[4];
  va_list list;
  va_start(list, what);
  for (unsigned i = 0; i < sizeof a / sizeof *a; i++)
    a[i] = va_arg(list, long);
  va_end(list);
  prctl_function *next = next_function(NEXT_prctl);
  bool is_first = UNLIKELY(is_filter_by_prctl(what, a[0], a[1])) && filter_prepare();
  int result = next(what, a[0], a[1], a[2], a[3]);
  if (UNLIKELY(is_first && result != 0))
    filter_withdraw();
  return result;
}

COLD static NOINLINE long filter_by_syscall(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER) {
  bool is_first = filter_prepare();
  long result = ((syscall_function *)next_function(NEXT_syscall))(number, a, b, c, d, e SIXTH_ARGUMENT);
  if (is_first && result < 0)
    filter_withdraw();
  return result;
}

COLD static NOINLINE long rare_call(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER) {
  if ((number == SYS_seccomp && is_filter_by_seccomp(a, b, c)) || (number == SYS_prctl && is_filter_by_prctl(a, b, c)))
    return filter_by_syscall(number, a, b, c, d, e SIXTH_ARGUMENT);
  return ((syscall_function *)next_function(NEXT_syscall))(number, a, b, c, d, e SIXTH_ARGUMENT);
}

/* The type differs from the header's: the arguments are passed on unchanged. */
EXPORT long system_call(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER) __asm__("syscall");

/* clone and vfork return twice, maybe on another stack, so this function must leave no frame. tests/surprises checks
 * that the compiler makes it a jump. */
long system_call(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER) {
  syscall_function *next = load_relaxed(&next_functions[NEXT_syscall]);
  if (UNLIKELY(next == NULL || number == SYS_seccomp || number == SYS_prctl))
    return rare_call(number, a, b, c, d, e SIXTH_ARGUMENT);
  return next(number, a, b, c, d, e SIXTH_ARGUMENT);
}
