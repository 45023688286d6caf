/* os_thread.c: process and thread ids, our thread, signals. */
#include "base/counters.h"
#include "base/text.h"
#include "os/os.h"

#include "os/filter.h"
#include "os/kernel.h"
#include "os/text_file.h"

#include <dlfcn.h>
#include <link.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

/* Returns what the system call returns, or the number behind the key of the status file. */
COLD static int id_asked(long call, const char *key) {
  if (!os_may_read_files())
    return 0;
  return os_filter_was_there() ? (int)os_file_field("/proc/self/status", key) : (int)os_kernel(call);
}

COLD int os_process_id(void) { return id_asked(SYS_getpid, "Tgid:"); }
COLD int os_parent_id(void) { return id_asked(SYS_getppid, "PPid:"); }
COLD int os_process_id_in_child(void) {
  int number = os_thread_number();
  return number > 0 ? number : os_process_id();
}
COLD bool os_has_children(void) {
  KEEP_ERRNO;
  return !os_may_call() ||
         os_kernel(SYS_waitid, (long)P_ALL, 0L, NULL, (long)(WEXITED | WNOHANG | WNOWAIT | __WALL), NULL) == 0 ||
         errno != ECHILD;
}
int os_thread_id(void) { return (int)os_kernel(SYS_gettid); }

/* Address space of our thread's stack. glibc puts the program's thread-local storage there too, so the rest must be
 * what the thread needs, several times over. glibc tells how much a thread takes; where it does not, and where address
 * space may be limited, the modules' segments are added up. */
#define STACK_BYTES_USUAL ((size_t)1 << 20)
#define STACK_BYTES_OWN ((size_t)128 << 10)
static size_t stack_bytes = STACK_BYTES_USUAL;

static int thread_local_add(struct dl_phdr_info *info, size_t size, void *sum) {
  (void)size;
  for (size_t i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_TLS)
      *(size_t *)sum += info->dlpi_phdr[i].p_memsz + info->dlpi_phdr[i].p_align;
  return 0;
}

static __typeof__(pthread_create) *library_create = pthread_create;
static size_t (*library_least)(const pthread_attr_t *); /* or NULL */

void os_thread_prepare(void) {
#ifndef HAK_TSAN /* ThreadSanitizer must see our threads */
  void *found = dlsym(RTLD_NEXT, "pthread_create");
  if (found)
    memcpy(&library_create, &found, sizeof found);
#ifdef __GLIBC__ /* in others the program would see the look-up's dlerror */
  void *least = dlsym(RTLD_NEXT, "__pthread_get_minstack");
  memcpy(&library_least, &least, sizeof least);
#endif
#endif
  bool is_limited = os_memory_limit() != SIZE_MAX;
  if (is_limited || library_least == NULL) {
    size_t bytes = STACK_BYTES_OWN;
    dl_iterate_phdr(thread_local_add, &bytes);
    bytes = round_up(bytes, os_page_bytes());
    stack_bytes = is_limited ? bytes : max_size(bytes, STACK_BYTES_USUAL);
  }
}

bool os_thread_start(void *(*run)(void *), pthread_t *out) {
  pthread_attr_t attributes;
  if (pthread_attr_init(&attributes) != 0)
    return false;
#ifdef HAK_TSAN /* ThreadSanitizer wants every thread joined before the program ends */
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
#endif
  if (os_may_call())
    pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
  size_t least = library_least != NULL ? library_least(&attributes) + STACK_BYTES_OWN : 0;
  pthread_attr_setstacksize(&attributes, max_size(stack_bytes, round_up(least, os_page_bytes())));
  int result = library_create(out, &attributes, run, NULL);
  pthread_attr_destroy(&attributes);
  return result == 0;
}

void os_thread_name(const char *name) {
  if (os_may_call())
    pthread_setname_np(pthread_self(), name);
}

/* This is no cancellation point, because allocating is none. */
void os_thread_join(pthread_t thread) {
#ifdef HAK_TSAN
  (void)thread;
#else
  int state;
  pthread_setcancelstate(PTHREAD_CANCEL_DISABLE, &state);
  pthread_join(thread, NULL);
  pthread_setcancelstate(state, &state);
#endif
}

/* An unreadable file tells nothing of the thread. */
static bool status_shows(int thread_id) {
  char path[64];
  struct text text = TEXT_IN(path);
  text_format(&text, "/proc/self/task/%lu/status", (uint64_t)thread_id);
  return os_file_field(path, "Pid:") != 0 || os_process_id() == 0;
}

bool os_thread_exists(int thread_id) {
  if (os_filter_was_there())
    return status_shows(thread_id);
  counter_note(calls_other);
  return os_kernel(SYS_tgkill, (long)getpid(), (long)thread_id, 0L) == 0 || errno != ESRCH;
}

void os_signals_block(sigset_t *before) {
  sigset_t all;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, before);
}

void os_signals_restore(const sigset_t *before) { pthread_sigmask(SIG_SETMASK, before, NULL); }

#define MAIN_STACK_BYTES_MAX ((uintptr_t)64 << 20) /* the kernel keeps other mappings farther from it */

/* The main thread's stack ends at the auxiliary vector's strings. Makes no system call. */
bool os_is_main_thread(void) {
  char here;
  return (uintptr_t)getauxval(AT_RANDOM) - (uintptr_t)&here < MAIN_STACK_BYTES_MAX;
}

/* The C library writes the id into a mutex that records its owner. */
int os_thread_number(void) {
  pthread_mutexattr_t attributes;
  pthread_mutex_t mutex;
  pthread_mutexattr_init(&attributes);
  pthread_mutexattr_settype(&attributes, PTHREAD_MUTEX_ERRORCHECK);
  pthread_mutex_init(&mutex, &attributes);
  pthread_mutex_lock(&mutex);
#ifdef __GLIBC__
  int number = mutex.__data.__owner;
#else
  int number = 0;
#endif
  pthread_mutex_unlock(&mutex);
  pthread_mutex_destroy(&mutex);
  pthread_mutexattr_destroy(&attributes);
  return number;
}

int os_thread_shown(void) {
  int number = os_filter_is_own() || os_filter_was_there() ? os_thread_number() : 0;
  return number > 0 || os_filter_is_own() ? number : os_thread_id();
}

int os_process_id_at_start(void) {
  int number = os_is_main_thread() ? os_thread_number() : 0;
  return number > 0 ? number : os_process_id();
}

COLD void os_at_thread_end(void (*end)(void *)) {
  static pthread_key_t key;
  static bool made;
  if (!made)
    made = pthread_key_create(&key, end) == 0;
  if (made)
    pthread_setspecific(key, (void *)end);
}
