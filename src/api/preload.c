/* What the shared library does to the program that it is preloaded to: it finds out whose malloc the program uses, and
 * wraps some functions of the C library. The wrapped functions are those that the libraries after this one define. */
#include "api/alloc.h"

#include "base/observers.h"
#include "base/options.h"
#include "budget/usage.h"
#include "hakmem/hakmem.h"
#include "heap/slow_path.h"
#include "os/caller.h"
#include "os/filter.h"
#include "os/os.h"
#include "os/say.h"
#include "pages/extent.h"
#include "reclaim/background.h"

#include <dlfcn.h>
#include <linux/seccomp.h>
#include <sched.h>
#include <stdarg.h>
#include <stdlib.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <unistd.h>

/* For os/caller.h. The link says -z nodelete. */
const char os_is_shared_library[] = "";

/* clang-format off */
#define NEXT_FUNCTIONS(DO) \
  DO(unshare) DO(setns) DO(_Fork) DO(fork) DO(clone) DO(mlockall) DO(dlopen) DO(prctl) DO(syscall)
/* clang-format on */
#define NEXT_NUMBER(name) NEXT_##name,
#define NEXT_NAME(name) #name,
enum next { NEXT_FUNCTIONS(NEXT_NUMBER) NEXT_COUNT };
static _Atomic(void *) next_functions[NEXT_COUNT];

/* What stands for one that no library defines. */
static int next_is_missing(void) {
  errno = ENOSYS;
  return -1;
}

/* Looks for all of them. Other constructors may call a wrapper earlier. */
__attribute__((constructor)) static NOINLINE void next_find(void) {
  static const char names[NEXT_COUNT][9] = {NEXT_FUNCTIONS(NEXT_NAME)};
  for (unsigned i = 0; i < NEXT_COUNT; i++) {
    void *found = dlsym(RTLD_NEXT, names[i]);
    store_relaxed(&next_functions[i], found ? found : (void *)next_is_missing);
  }
}

static inline void *next_function(enum next which) {
  if (UNLIKELY(load_relaxed(&next_functions[which]) == NULL))
    next_find();
  return load_relaxed(&next_functions[which]);
}

/* The same by its name, with the type that a header or this file declares. */
#define NEXT(name) ((__typeof__(name) *)next_function(NEXT_##name))

/* --- whose malloc it is --- */

/* The shared library may be preloaded or linked, and then malloc is ours in the whole process. Or it was opened by
 * dlopen for private use, beside another malloc. The names of the program's own scope tell. */

/* dlopen's name of the program. For glibc NULL is the empty name too, but a constant of its own, whose pages few
 * programs touch at their start. */
#ifdef __GLIBC__
#define PROGRAM ""
#else
#define PROGRAM NULL
#endif

/* dlmopen and LD_AUDIT make further namespaces, each with a libc of its own. The program is in none of them, and in an
 * auditor's glibc's dlopen(NULL) crashes. */
__attribute__((constructor)) static void find_scope(void) {
  void *program = os_is_in_namespace_of_program() ? dlopen(PROGRAM, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (program == NULL)
    return;
  if (dlsym(program, "malloc") == (void *)malloc && dlsym(program, "free") == (void *)free)
    foreign_malloc_is_ours();
  dlclose(program);
}

/* --- dlopen --- */

/* RTLD_DEEPBIND lets a loaded library find libc's malloc and free before ours, while libc's strdup, getline and so on
 * call ours. The library then frees our blocks with libc's free, which aborts. So this wrapper of dlopen drops the flag
 * (HAKMEM_DEEPBIND=keep leaves it; docs/decisions/0004). dlopen finds the caller's search path by the return address,
 * so the wrapper ends in a tail call; tests/dlopen checks that the compiler makes it a jump. */

#ifndef RTLD_DEEPBIND
#define RTLD_DEEPBIND 0
#endif

__attribute__((constructor)) static void libraries_are_told(void) { store_relaxed(&observers_libraries_told, true); }

EXPORT void *dlopen(const char *path, int flags) {
  if (option_value(OPTION_DEEPBIND) == DEEPBIND_DROP)
    flags &= ~RTLD_DEEPBIND;
  if (path != NULL && *path != 0 && observers.libraries_changed != NULL) /* without a path: the program, which stays */
    observers.libraries_changed();
  return NEXT(dlopen)(path, flags);
}

/* --- threads and forks --- */

/* The background thread is stopped before two kinds of calls: those that need a process with one thread (unshare and
 * setns, for some namespaces), and those whose child would find locks held by a thread that does not exist there
 * (_Fork; clone without CLONE_VM). For fork, handlers do that (api/start.c).
 *
 * A signal handler may fork while the same thread is in fork. On glibc this works as long as a process has never had a
 * second thread. Afterwards fork takes locks and would wait for itself. The second thread may be ours, so such a call
 * becomes _Fork, which takes no locks and calls no handlers.
 *
 * mlockall counts all that is mapped against RLIMIT_MEMLOCK. So the threads' bins and slabs give back what is free, and
 * the arenas what they only reserved, before it. */
EXPORT int unshare(int flags) {
  /* Other flags work with any number of threads. */
  if (flags & (CLONE_NEWUSER | CLONE_THREAD | CLONE_VM | CLONE_SIGHAND))
    background_stop();
  return NEXT(unshare)(flags);
}

EXPORT int setns(int fd, int kind) {
  background_stop();
  return NEXT(setns)(fd, kind);
}

EXPORT int _Fork(void) {
  background_stop();
  return NEXT(_Fork)();
}

EXPORT COLD int fork(void) {
  __typeof__(fork) *libc_fork = NEXT(fork), *libc__Fork = NEXT(_Fork);
  if (hak_thread & THREAD_IN_FORK)
    return background_has_been() && libc__Fork != next_is_missing ? libc__Fork() : libc_fork();
  hak_thread |= THREAD_IN_FORK;
  int child = libc_fork();
  hak_thread &= ~(uintptr_t)THREAD_IN_FORK;
  return child;
}

EXPORT int mlockall(int flags) {
  hak_trim(0);
  if (slow_path_begin()) {
    extents_release(UNIT_BYTES);
    slow_path_end();
  }
  return NEXT(mlockall)(flags);
}

/* The header's clone is variadic: the flags tell which of the last three arguments exist and are read. */
typedef int clone_function(int (*run)(void *), void *stack, int flags, void *argument, void *parent_id, void *storage,
                           void *child_id);
EXPORT clone_function hak_clone __asm__("clone");
int hak_clone(int (*run)(void *), void *stack, int flags, void *argument, void *parent_id, void *storage,
              void *child_id) {
  if ((flags & CLONE_VM) == 0)
    background_stop();
  return ((clone_function *)next_function(NEXT_clone))(run, stack, flags, argument, parent_id, storage, child_id);
}

/* Reads ahead what cannot be read afterwards, without /proc and the files of control groups. Few programs call it, so
 * next_find does not look for it. */
static __typeof__(chroot) *chroot_prepare(void) {
  KEEP_ERRNO;
  usage_look();
  os_may_call(); /* finds out whether there is a filter */
  void *found = dlsym(RTLD_NEXT, "chroot");
  return found ? found : (void *)next_is_missing;
}

EXPORT int chroot(const char *path) { return chroot_prepare()(path); }

/* --- filters --- */

/* A seccomp filter may kill the process for any system call that libc's malloc does not make. So hakmem reads what it
 * has to read before the program installs a filter, and makes only memory calls afterwards (os/filter.h). Programs
 * install filters by prctl, by syscall, or by libseccomp, which calls syscall. Code that enters the kernel by an
 * instruction of its own is not noticed. */

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

/* Prepares for a filter. True if it is the first one. Reads ahead what later calls ask for. */
static bool filter_prepare(void) {
  KEEP_ERRNO;
  struct lifeline line;
  usage_look();
  background_stop_for_good();
  if (os_filter_is_own())
    return false;
  os_memory_limit_ask_again();
  os_say_prepare();
  lifeline_make(&line);
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
  __typeof__(prctl) *next = NEXT(prctl);
  bool is_first = UNLIKELY(is_filter_by_prctl(what, a[0], a[1])) && filter_prepare();
  int result = next(what, a[0], a[1], a[2], a[3]);
  if (UNLIKELY(is_first && result != 0))
    filter_withdraw();
  return result;
}

COLD static long rare_call(long number, long a, long b, long c, long d, long e SIXTH_PARAMETER) {
  syscall_function *next = next_function(NEXT_syscall);
  bool is_filter =
      (number == SYS_seccomp && is_filter_by_seccomp(a, b, c)) || (number == SYS_prctl && is_filter_by_prctl(a, b, c));
  if (!is_filter)
    return next(number, a, b, c, d, e SIXTH_ARGUMENT);
  bool is_first = filter_prepare();
  long result = next(number, a, b, c, d, e SIXTH_ARGUMENT);
  if (is_first && result < 0)
    filter_withdraw();
  return result;
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
