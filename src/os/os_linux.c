#include "os/os.h"

#include "os/fault.h"
#include "os/filter.h"
#include "os/kernel.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
#include <sched.h>
#include <signal.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

static _Atomic uint64_t calls[OS_CALL_KINDS];

static void count_call(enum os_call kind) { atomic_fetch_add_explicit(&calls[kind], 1, memory_order_relaxed); }

void os_call_count(enum os_call kind) { count_call(kind); }

uint64_t os_calls(enum os_call kind) { return atomic_load_explicit(&calls[kind], memory_order_relaxed); }

size_t os_page_bytes(void) {
  static _Atomic size_t bytes;
  size_t known = atomic_load_explicit(&bytes, memory_order_relaxed);
  if (known == 0) {
    known = getauxval(AT_PAGESZ); /* the auxiliary vector is there before any constructor */
    if (!is_power_of_two(known) || known > UNIT_BYTES)
      known = 4096;
    atomic_store_explicit(&bytes, known, memory_order_relaxed);
  }
  return known;
}

size_t os_memory_limit(void) {
  static _Atomic size_t limit;
  static const int kinds[] = {RLIMIT_AS, RLIMIT_DATA};
  size_t known = atomic_load_explicit(&limit, memory_order_relaxed);
  if (UNLIKELY(known == 0)) {
    known = SIZE_MAX;
    for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
      struct rlimit now;
      count_call(OS_CALL_OTHER);
      if (getrlimit(kinds[i], &now) == 0 && now.rlim_cur != RLIM_INFINITY)
        known = min_size(known, max_size((size_t)now.rlim_cur, 1));
    }
    atomic_store_explicit(&limit, known, memory_order_relaxed);
  }
  return known;
}

/* The kernel orders one thread's accesses before it unmaps an address before another thread's accesses after it maps
 * the address. ThreadSanitizer is told so. */
#ifdef HAK_TSAN
static char mappings;
#define KERNEL_ORDERS_RELEASE() __tsan_release(&mappings)
#define KERNEL_ORDERS_ACQUIRE() __tsan_acquire(&mappings)
#else
#define KERNEL_ORDERS_RELEASE() ((void)0)
#define KERNEL_ORDERS_ACQUIRE() ((void)0)
#endif

/* MAP_NORESERVE is not used, so the kernel refuses here what it can never back, and no OOM kill comes later. hint: the
 * preferred address. */
static void *map_near(uintptr_t hint, size_t size, int protection) {
  count_call(OS_CALL_MAP);
  void *p = mmap((void *)hint, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KERNEL_ORDERS_ACQUIRE();
  return p == MAP_FAILED ? NULL : p;
}

/* The kernel places mappings side by side. So a plain mapping is often aligned; otherwise the place below it is mostly
 * free. The last way maps more and cuts. The first two never map more than `size`, even for a moment: limits count
 * it. */
static void *map_aligned(size_t size, size_t alignment, int protection) {
  uintptr_t hint = 0;
  char *p = NULL;
  for (int attempt = 0; attempt < 2; attempt++) {
    p = map_near(hint, size, protection);
    if (p == NULL || ((uintptr_t)p & (alignment - 1)) == 0)
      return p;
    hint = round_down((uintptr_t)p, alignment);
    os_unmap(p, size);
  }
  if (size + alignment < size)
    return NULL;
  p = map_near(0, size + alignment, protection);
  if (p == NULL)
    return NULL;
  char *aligned = (char *)round_up((uintptr_t)p, alignment);
  if (aligned > p)
    os_unmap(p, (size_t)(aligned - p));
  char *end = p + size + alignment;
  if (end > aligned + size)
    os_unmap(aligned + size, (size_t)(end - (aligned + size)));
  return aligned;
}

/* Huge pages are hakmem's decision, whatever the system's setting: with `always`, one touched byte would make 2 MiB
 * resident. A short mapping says so too, because the kernel joins neighbours. os_huge takes it back. */
static void *map_plain(size_t size, size_t alignment, int protection) {
  void *p = map_aligned(size, alignment, protection);
  if (p != NULL) {
    count_call(OS_CALL_ADVISE);
    madvise(p, size, MADV_NOHUGEPAGE);
  }
  return p;
}

void *os_reserve(size_t size, size_t alignment) { return map_plain(size, alignment, PROT_NONE); }
void *os_map(size_t size, size_t alignment) { return map_plain(size, alignment, PROT_READ | PROT_WRITE); }

void *os_map_for_this_process(size_t size) {
  void *base = os_map(size, os_page_bytes());
  if (base == NULL)
    return NULL;
  count_call(OS_CALL_OTHER);
  if (madvise(base, size, MADV_WIPEONFORK) == 0)
    return base;
  os_unmap(base, size);
  return NULL;
}

bool os_commit(void *address, size_t size) {
  count_call(OS_CALL_PROTECT);
  return mprotect(address, size, PROT_READ | PROT_WRITE) == 0;
}

bool os_purge(void *address, size_t size) {
  count_call(OS_CALL_ADVISE);
  return madvise(address, size, MADV_DONTNEED) == 0;
}

bool os_purge_lazily(void *address, size_t size) {
  count_call(OS_CALL_ADVISE);
  return madvise(address, size, MADV_FREE) == 0;
}

void os_restore(void *address, size_t size) {
  count_call(OS_CALL_PROTECT);
  mprotect(address, size, PROT_READ | PROT_WRITE);
  count_call(OS_CALL_ADVISE);
  madvise(address, size, MADV_DOFORK);
}

void os_huge(void *address, size_t size) {
  count_call(OS_CALL_ADVISE);
  madvise(address, size, MADV_HUGEPAGE);
}

size_t os_resident_bytes(const void *address, size_t size) {
  if (!os_may_call())
    return 0;
  unsigned char pages[1024];
  size_t page = os_page_bytes(), resident = 0;
  const char *at = address, *end = at + size;
  while (at < end) {
    size_t step = min_size((size_t)(end - at), sizeof pages * page);
    count_call(OS_CALL_OTHER);
    if (mincore((void *)(uintptr_t)at, step, pages) != 0)
      return 0;
    for (size_t i = 0; i < step / page; i++)
      resident += (pages[i] & 1) * page;
    at += step;
  }
  return resident;
}

bool os_unmap(void *address, size_t size) {
  count_call(OS_CALL_UNMAP);
  KERNEL_ORDERS_RELEASE();
  return munmap(address, size) == 0;
}

bool os_resize(void *address, size_t size, size_t size_wanted) {
  count_call(OS_CALL_REMAP);
  return mremap(address, size, size_wanted, 0) != MAP_FAILED;
}

static char *move_mapping(char *address, size_t size, size_t size_wanted) {
  count_call(OS_CALL_REMAP);
  KERNEL_ORDERS_RELEASE(); /* of the old range */
  char *moved = mremap(address, size, size_wanted, MREMAP_MAYMOVE);
  KERNEL_ORDERS_ACQUIRE();
  return moved == MAP_FAILED ? NULL : moved;
}

/* mremap must not get a target range chosen here. If it fails, the kernel may have unmapped the target already, and
 * another thread may own it by then. From 6.7 on Linux aligns mappings whose length is a multiple of 2 MiB. Older
 * kernels mostly place a mapping right below the last one. So a second move, of a mapping that is longer by the missing
 * bytes, is aligned. If it is not, the content moves inside the mapping. */
#define MOVED_ALIGNMENT ((size_t)2 << 20)

void *os_move(void *address, size_t size, size_t size_wanted, size_t alignment) {
  size_t longer = round_up(size_wanted + alignment, MOVED_ALIGNMENT);
  if (longer < size_wanted)
    return NULL;
  char *moved = move_mapping(address, size, longer);
  if (moved == NULL)
    return NULL;
  if (((uintptr_t)moved & (alignment - 1)) != 0) {
    size_t missing = (uintptr_t)moved & (MOVED_ALIGNMENT - 1);
    char *again = move_mapping(moved, longer, longer + missing);
    if (again != NULL) {
      longer += missing;
      moved = again;
    }
  }
  char *aligned = (char *)round_up((uintptr_t)moved, alignment);
  if (aligned > moved) {
    memmove(aligned, moved, size);
    os_unmap(moved, (size_t)(aligned - moved));
  }
  os_unmap(aligned + size_wanted, (size_t)(moved + longer - (aligned + size_wanted)));
  return aligned;
}

void os_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  count_call(OS_CALL_FUTEX);
  os_kernel(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, NULL, NULL, 0);
}

void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  count_call(OS_CALL_FUTEX);
  os_kernel(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, &timeout, NULL, 0);
}

void os_futex_wake(_Atomic uint32_t *word) {
  count_call(OS_CALL_FUTEX);
  os_kernel(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
}

bool os_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  int kept = errno;
  os_call_count(OS_CALL_FUTEX);
  long result = os_kernel(SYS_futex, word, FUTEX_WAIT, expected, timeout_ms == UINT64_MAX ? NULL : &timeout, NULL, 0);
  errno = kept;
  return result == 0;
}

void os_futex_wake_shared(_Atomic uint32_t *word) {
  int kept = errno;
  os_call_count(OS_CALL_FUTEX);
  os_kernel(SYS_futex, word, FUTEX_WAKE, 1, NULL, NULL, 0);
  errno = kept;
}

void os_spin_hint(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

uint64_t os_milliseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_epoch_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_REALTIME, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_thread_nanoseconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

#define DESCRIPTORS_USUAL 1024 /* the usual limit: a process's table that is larger costs memory */
#define DESCRIPTORS_OURS 32    /* the highest of these numbers are used */

int os_duplicate_high(int fd) {
  int kept = errno;
  struct rlimit limit = {.rlim_cur = DESCRIPTORS_USUAL};
  getrlimit(RLIMIT_NOFILE, &limit);
  long most = (long)min_size(limit.rlim_cur, DESCRIPTORS_USUAL);
  int duplicate =
      (int)os_kernel(SYS_fcntl, (long)fd, (long)F_DUPFD_CLOEXEC, most - min_size(DESCRIPTORS_OURS, most / 2));
  errno = kept;
  return duplicate;
}

/* Makes the call that the C library makes, because a filter from before the program allows that one. On both
 * architectures the kernel's struct is the library's. */
bool os_file_status(int fd, struct stat *status) {
  return os_kernel(SYS_newfstatat, (long)fd, "", status, (long)AT_EMPTY_PATH) == 0;
}

struct os_file os_file_identity(int fd) {
  struct stat status;
  int kept = errno;
  bool known = os_file_status(fd, &status);
  errno = kept;
  return known ? (struct os_file){.device = status.st_dev, .inode = status.st_ino} : (struct os_file){0};
}

bool os_file_is(int fd, struct os_file file) {
  struct os_file now = os_file_identity(fd);
  return now.device == file.device && now.inode == file.inode;
}

const char *os_environment_next(const char *prefix, size_t *cursor) {
  if (environ == NULL || getauxval(AT_SECURE))
    return NULL;
  while (environ[*cursor] != NULL) {
    const char *assignment = environ[(*cursor)++];
    if (strncmp(assignment, prefix, strlen(prefix)) == 0 && strchr(assignment, '=') != NULL)
      return assignment;
  }
  return NULL;
}

int os_process_id(void) { return os_may_read_files() ? (int)os_kernel(SYS_getpid) : 0; }
int os_thread_id(void) { return (int)os_kernel(SYS_gettid); }

/* Returns a field "KEY: N kB" of /proc/self/status, in bytes; 0 where it cannot be read. */
static uint64_t status_field(const char *key) {
  char text[4096];
  int kept = errno;
  uint64_t kib = 0;
  int fd = (int)os_kernel(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    long length = os_kernel(SYS_read, fd, text, sizeof text - 1);
    os_kernel(SYS_close, fd);
    text[length < 0 ? 0 : length] = 0;
    const char *line = strstr(text, key);
    for (const char *c = line ? line + strlen(key) : ""; *c && *c != '\n'; c++)
      if (*c >= '0' && *c <= '9')
        kib = kib * 10 + (uint64_t)(*c - '0');
  }
  errno = kept;
  return kib * 1024;
}

size_t os_resident_of_process(void) {
  char text[128];
  int kept = errno;
  size_t pages = 0;
  if (!os_may_read_files())
    return 0;
  count_call(OS_CALL_OTHER);
  int fd = (int)os_kernel(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    long length = os_kernel(SYS_read, fd, text, sizeof text - 1);
    os_kernel(SYS_close, fd);
    text[length < 0 ? 0 : length] = 0;
    const char *second = strchr(text, ' ');
    for (const char *c = second ? second + 1 : ""; *c >= '0' && *c <= '9'; c++)
      pages = pages * 10 + (size_t)(*c - '0');
  }
  errno = kept;
  return pages * os_page_bytes();
}

void os_usage_read(struct os_usage *out) {
  struct rusage usage;
  *out = (struct os_usage){0};
  if (!os_may_read_files())
    return;
  count_call(OS_CALL_OTHER);
  out->resident_peak_bytes = status_field("VmHWM:");
  if (getrusage(RUSAGE_SELF, &usage) != 0)
    return;
  out->faults_minor = (uint64_t)usage.ru_minflt;
  out->faults_major = (uint64_t)usage.ru_majflt;
}

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
  int state = atomic_load_explicit(&known, memory_order_relaxed);
  if (state == 0) {
    void *head = NULL;
    size_t length;
    count_call(OS_CALL_OTHER);
    state = os_kernel(SYS_get_robust_list, 0, &head, &length) == 0 ? 2 : 1;
    atomic_store_explicit(&known, state, memory_order_relaxed);
  }
  return state == 2;
}

void lifeline_reset(struct lifeline *line) {
  pthread_mutexattr_t attributes;
  pthread_mutexattr_init(&attributes);
  bool robust = robust_mutexes_work() && pthread_mutexattr_setrobust(&attributes, PTHREAD_MUTEX_ROBUST) == 0 &&
                pthread_mutex_init(&line->mutex, &attributes) == 0;
  atomic_store_explicit(&line->thread_id, robust ? -1 : 0, memory_order_relaxed);
  pthread_mutexattr_destroy(&attributes);
}

bool lifeline_take(struct lifeline *line) {
  int holder = atomic_load_explicit(&line->thread_id, memory_order_acquire);
  if (holder == -1) {
    int result = pthread_mutex_trylock(&line->mutex);
    if (result == EOWNERDEAD)
      pthread_mutex_consistent(&line->mutex);
    return result == 0 || result == EOWNERDEAD;
  }
  if (holder != 0) {
    count_call(OS_CALL_OTHER);
    if (os_kernel(SYS_tgkill, (long)getpid(), (long)holder, 0L) == 0 || errno != ESRCH)
      return false;
  }
  return atomic_compare_exchange_strong_explicit(&line->thread_id, &holder, (int)os_kernel(SYS_gettid),
                                                 memory_order_acq_rel, memory_order_relaxed);
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

/* tgkill takes process and thread id, so a thread of another process does not count. In a child that no fork handler
 * prepared, the ids are the parent's and prove nothing. */
bool lifeline_take_left(struct lifeline *line, int process_id) {
  int holder = mutex_holder(&line->mutex);
  if (atomic_load_explicit(&line->thread_id, memory_order_relaxed) != -1 || holder == 0 ||
      process_id != os_process_id())
    return false;
  int kept = errno;
  count_call(OS_CALL_OTHER);
  bool is_gone = os_kernel(SYS_tgkill, (long)process_id, (long)holder, 0L) != 0 && errno == ESRCH;
  errno = kept;
  if (!is_gone || mutex_holder(&line->mutex) != holder)
    return false;
  lifeline_reset(line);
  return lifeline_take(line);
}

void lifeline_drop(struct lifeline *line) {
  if (atomic_load_explicit(&line->thread_id, memory_order_relaxed) == -1)
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

void lifeline_after_fork(struct lifeline *line, bool child) {
  if (child)
    lifeline_reset(line);
  if (child || LIST_SURVIVES_FORK)
    lifeline_take(line);
}

/* Address space of our thread's stack. The C library puts the program's thread-local storage there too. */
#define THREAD_STACK_BYTES ((size_t)1 << 20)

typedef int thread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static thread_create *library_create = pthread_create;

void os_thread_prepare(void) {
#ifndef HAK_TSAN /* ThreadSanitizer must see our threads */
  void *found = dlsym(RTLD_NEXT, "pthread_create");
  if (found)
    memcpy(&library_create, &found, sizeof found);
#endif
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
  pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
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

bool os_thread_exists(int thread_id) {
  count_call(OS_CALL_OTHER);
  return os_kernel(SYS_tgkill, (long)getpid(), (long)thread_id, 0L) == 0;
}

void os_yield(void) { sched_yield(); }

_Static_assert(sizeof(struct os_signals) >= sizeof(sigset_t), "a mask fits");

void os_signals_block(struct os_signals *before) {
  sigset_t all, set;
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &set);
  memcpy(before, &set, sizeof set);
}

void os_signals_restore(const struct os_signals *before) {
  sigset_t set;
  memcpy(&set, before, sizeof set);
  pthread_sigmask(SIG_SETMASK, &set, NULL);
}

#define MAIN_STACK_BYTES_MAX ((uintptr_t)64 << 20) /* the kernel keeps other mappings farther from it */

/* The main thread's stack ends at the auxiliary vector's strings. Makes no system call. */
bool os_is_main_thread(void) {
  char here;
  return (uintptr_t)getauxval(AT_RANDOM) - (uintptr_t)&here < MAIN_STACK_BYTES_MAX;
}

/* Returns the calling thread's id as the C library knows it: it writes the id into a mutex that records its owner. */
static int own_thread_number(void) {
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

int os_process_id_at_start(void) {
  int number = os_is_main_thread() ? own_thread_number() : 0;
  return number > 0 ? number : os_process_id();
}

/* The kernel clears a thread's list of robust mutexes when the thread ends. glibc registers a list for each thread,
 * musl only for threads that have taken such a mutex. */
bool os_main_thread_is_gone(void) {
#ifdef __GLIBC__
  static const bool had_list = true;
#else
  static _Atomic int list_of_process; /* whose main thread was seen to have one */
  bool had_list = atomic_load_explicit(&list_of_process, memory_order_relaxed) == getpid();
#endif
  void *head = NULL;
  size_t length;
  if (!robust_mutexes_work() || os_kernel(SYS_get_robust_list, (long)getpid(), &head, &length) != 0)
    return false;
#ifndef __GLIBC__
  if (head != NULL)
    atomic_store_explicit(&list_of_process, getpid(), memory_order_relaxed);
#endif
  return head == NULL && had_list;
}

void os_at_thread_end(void (*end)(void *)) {
  static pthread_key_t key;
  static bool made;
  if (!made)
    made = pthread_key_create(&key, end) == 0;
  if (made)
    pthread_setspecific(key, (void *)end);
}
