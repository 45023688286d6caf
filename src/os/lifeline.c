/* lifeline.c: robust mutexes that tell whether a thread lives. */
#include "base/counters.h"
#include "os/os.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/text_file.h"

#include <linux/futex.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <unistd.h>

/* The auxiliary vector has these entries since Linux 6.3 and 5.14. Emulators without robust mutexes lack them. */
#define AUXILIARY_RSEQ_FEATURE_SIZE 27
#define AUXILIARY_MINSIGSTKSZ 51

/* A robust mutex stays locked when its holder dies. The kernel marks it then, and the next trylock returns EOWNERDEAD.
 * Without robust mutexes (some emulators) lifelines use the thread id: ESRCH means that the holder has ended. If
 * another thread of ours got the id, its end is only noticed later. Whether this thread has registered a robust list
 * proves nothing: musl registers it late, and ends the list by itself in pthread_exit. */
static bool robust_mutexes_work(void) {
  static _Atomic int known;                                                       /* 1 no, 2 yes */
  if (getauxval(AUXILIARY_RSEQ_FEATURE_SIZE) || getauxval(AUXILIARY_MINSIGSTKSZ)) /* a kernel; no call is needed */
    return true;
  int state = load_relaxed(&known);
  if (state == 0) {
    void *head = NULL;
    size_t length;
    counter_note(calls_other);
    state = os_kernel(SYS_get_robust_list, 0, &head, &length) == 0 ? 2 : 1;
    store_relaxed(&known, state);
  }
  return state == 2;
}

void lifeline_make(struct lifeline *line) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  bool robust = robust_mutexes_work() && pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                pthread_mutex_init(&line->mutex, &attributes) == 0;
  store_relaxed(&line->thread_id, robust ? -1 : 0);
  pthread_mutexattr_destroy(&attributes);
  line->fresh = line->mutex;
}

/* Copies the mutex as it was made: in the child of a fork each function of the C library costs a page fault. */
COLD void lifeline_reset(struct lifeline *line) {
  line->mutex = line->fresh;
  if (load_relaxed(&line->thread_id) != -1)
    store_relaxed(&line->thread_id, 0);
}

COLD bool lifeline_take(struct lifeline *line) {
  int holder = atomic_load_explicit(&line->thread_id, memory_order_acquire);
  if (holder == -1) {
    int result = pthread_mutex_trylock(&line->mutex);
    if (result == EOWNERDEAD)
      pthread_mutex_consistent(&line->mutex);
    return result == 0 || result == EOWNERDEAD;
  }
  if (holder != 0 && os_thread_exists(holder))
    return false;
  return atomic_compare_exchange_strong_explicit(&line->thread_id, &holder, os_thread_id(), memory_order_acq_rel,
                                                 memory_order_relaxed);
}

/* Returns the holder's thread id. The kernel and the C library agree on the word of a robust mutex that has it. */
static int mutex_holder(const pthread_mutex_t *mutex) {
#ifdef __GLIBC__
  const int *word = &mutex->__data.__lock;
#else
  const volatile int *word = &mutex->__u.__vi[1];
#endif
  return __atomic_load_n(word, __ATOMIC_RELAXED) & FUTEX_TID_MASK;
}

/* In a child that no fork handler prepared, the ids are the parent's and prove nothing. */
bool lifeline_take_left(struct lifeline *line, int process_id) {
  int holder = mutex_holder(&line->mutex);
  if (load_relaxed(&line->thread_id) != -1 || holder == 0 || process_id != os_process_id())
    return false;
  KEEP_ERRNO;
  if (os_thread_exists(holder) || mutex_holder(&line->mutex) != holder)
    return false;
  lifeline_reset(line);
  return lifeline_take(line);
}

void lifeline_drop(struct lifeline *line) {
  if (load_relaxed(&line->thread_id) == -1)
    pthread_mutex_unlock(&line->mutex);
  else
    atomic_store_explicit(&line->thread_id, 0, memory_order_release);
}

/* The C library keeps a list of the robust mutexes that a thread holds. glibc empties it in the child of a fork. musl
 * leaves it, and a mutex that the child locks again would be linked to itself. So with musl the forking thread gives
 * our mutexes up over the fork. */
#ifdef __GLIBC__
#define LIST_SURVIVES_FORK false
#else
#define LIST_SURVIVES_FORK true
#endif

void lifeline_before_fork(struct lifeline *line) {
  if (LIST_SURVIVES_FORK)
    lifeline_drop(line);
}

COLD void lifeline_after_fork(struct lifeline *line, bool child) {
  if (child)
    lifeline_reset(line);
  if (child || LIST_SURVIVES_FORK)
    lifeline_take(line);
}

/* The kernel clears a thread's list of robust mutexes when the thread ends. glibc registers a list for each thread,
 * musl only for threads that have taken such a mutex. */
bool os_main_thread_is_gone(void) {
  if (os_filter_was_there()) /* the process's own status is the main thread's, whose memory ends first */
    return os_file_field("/proc/self/status", "Pid:") != 0 && os_file_field("/proc/self/status", "VmSize:") == 0;
#ifdef __GLIBC__
  static const bool had_list = true;
#else
  static _Atomic int list_of_process; /* whose main thread was seen to have one */
  bool had_list = load_relaxed(&list_of_process) == getpid();
#endif
  void *head = NULL;
  size_t length;
  if (!robust_mutexes_work() || os_kernel(SYS_get_robust_list, (long)getpid(), &head, &length) != 0)
    return false;
#ifndef __GLIBC__
  if (head != NULL)
    store_relaxed(&list_of_process, getpid());
#endif
  return head == NULL && had_list;
}
