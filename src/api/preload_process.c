/* The background thread is stopped before two kinds of calls: those that need a process with one thread (unshare and
 * setns, for some namespaces), and those whose child would find locks held by a thread that does not exist there
 * (_Fork; clone without CLONE_VM). For fork, handlers do that (api/start.c).
 *
 * A signal handler may fork while the same thread is in fork. On glibc this works as long as a process has never had a
 * second thread. Afterwards fork takes locks and would wait for itself. The second thread may be ours, so such a call
 * becomes _Fork, which takes no locks and calls no handlers.
 *
 * mlockall counts reserved address space against RLIMIT_MEMLOCK. So the arenas give back what they only reserved before
 * it. */
#include "api/next.h"
#include "heap/slow_path.h"
#include "pages/extent.h"
#include "reclaim/background.h"

#include <sched.h>

EXPORT int unshare(int flags) {
  /* Other flags work with any number of threads. */
  if (flags & (CLONE_NEWUSER | CLONE_THREAD | CLONE_VM | CLONE_SIGHAND))
    background_stop();
  return ((int (*)(int))next_function(NEXT_unshare))(flags);
}

EXPORT int setns(int fd, int kind) {
  background_stop();
  return ((int (*)(int, int))next_function(NEXT_setns))(fd, kind);
}

EXPORT int _Fork(void) {
  background_stop();
  return ((int (*)(void))next_function(NEXT__Fork))();
}

EXPORT COLD int fork(void) {
  int (*libc_fork)(void) = next_function(NEXT_fork), (*libc__Fork)(void) = next_function(NEXT__Fork);
  if (hak_thread & THREAD_IN_FORK)
    return background_has_been() && libc__Fork != next_is_missing ? libc__Fork() : libc_fork();
  hak_thread |= THREAD_IN_FORK;
  int child = libc_fork();
  hak_thread &= ~(uintptr_t)THREAD_IN_FORK;
  return child;
}

EXPORT int mlockall(int flags) {
  if (slow_path_begin()) {
    extents_release(UNIT_BYTES);
    slow_path_end();
  }
  return ((int (*)(int))next_function(NEXT_mlockall))(flags);
}

/* The header's clone is variadic: the flags tell whether the last three arguments exist. The C library reads only
 * those. */
typedef int clone_function(int (*run)(void *), void *stack, int flags, void *argument, void *parent_id, void *storage,
                           void *child_id);
EXPORT clone_function hak_clone __asm__("clone");
int hak_clone(int (*run)(void *), void *stack, int flags, void *argument, void *parent_id, void *storage,
              void *child_id) {
  if ((flags & CLONE_VM) == 0)
    background_stop();
  return ((clone_function *)next_function(NEXT_clone))(run, stack, flags, argument, parent_id, storage, child_id);
}
