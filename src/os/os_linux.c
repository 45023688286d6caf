#include "os/os.h"

#include "os/fault.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <linux/futex.h>
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

static void count(enum os_call kind) { atomic_fetch_add_explicit(&calls[kind], 1, memory_order_relaxed); }

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

size_t os_address_space_limit(void) {
  static _Atomic size_t limit;
  size_t known = atomic_load_explicit(&limit, memory_order_relaxed);
  if (known == 0) {
    struct rlimit now;
    count(OS_CALL_OTHER);
    known = getrlimit(RLIMIT_AS, &now) != 0 || now.rlim_cur == RLIM_INFINITY ? SIZE_MAX : (size_t)now.rlim_cur;
    atomic_store_explicit(&limit, known, memory_order_relaxed);
  }
  return known;
}

/* What a thread did before it unmapped an address comes before what another does after it mapped it: the
 * kernel sees to that, and ThreadSanitizer is told. */
#ifdef HAK_TSAN
static char mappings;
#define KERNEL_ORDERS_RELEASE() __tsan_release(&mappings)
#define KERNEL_ORDERS_ACQUIRE() __tsan_acquire(&mappings)
#else
#define KERNEL_ORDERS_RELEASE() ((void)0)
#define KERNEL_ORDERS_ACQUIRE() ((void)0)
#endif

/* Without MAP_NORESERVE: what can never be backed is refused here, not by the OOM killer. */
static void *map(size_t size, int protection) {
  count(OS_CALL_MAP);
  void *p = mmap(NULL, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KERNEL_ORDERS_ACQUIRE();
  return p == MAP_FAILED ? NULL : p;
}

/* The kernel places mappings side by side, so a plain mapping is often aligned already; else map
 * more and cut. */
static void *map_aligned(size_t size, size_t alignment, int protection) {
  char *p = map(size, protection);
  if (p == NULL || ((uintptr_t)p & (alignment - 1)) == 0)
    return p;
  os_unmap(p, size);
  if (size + alignment < size)
    return NULL;
  p = map(size + alignment, protection);
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

void *os_reserve(size_t size, size_t alignment) { return map_aligned(size, alignment, PROT_NONE); }
void *os_map(size_t size, size_t alignment) { return map_aligned(size, alignment, PROT_READ | PROT_WRITE); }

bool os_commit(void *address, size_t size) {
  count(OS_CALL_PROTECT);
  return mprotect(address, size, PROT_READ | PROT_WRITE) == 0;
}

bool os_purge(void *address, size_t size) {
  count(OS_CALL_ADVISE);
  return madvise(address, size, MADV_DONTNEED) == 0;
}

bool os_purge_lazily(void *address, size_t size) {
  count(OS_CALL_ADVISE);
  return madvise(address, size, MADV_FREE) == 0;
}

void os_huge(void *address, size_t size) {
  count(OS_CALL_ADVISE);
  madvise(address, size, MADV_HUGEPAGE);
}

size_t os_resident_bytes(const void *address, size_t size) {
  unsigned char pages[1024];
  size_t page = os_page_bytes(), resident = 0;
  const char *at = address, *end = at + size;
  while (at < end) {
    size_t step = min_size((size_t)(end - at), sizeof pages * page);
    count(OS_CALL_OTHER);
    if (mincore((void *)(uintptr_t)at, step, pages) != 0)
      return 0;
    for (size_t i = 0; i < step / page; i++)
      resident += (pages[i] & 1) * page;
    at += step;
  }
  return resident;
}

bool os_unmap(void *address, size_t size) {
  count(OS_CALL_UNMAP);
  KERNEL_ORDERS_RELEASE();
  return munmap(address, size) == 0;
}

bool os_resize(void *address, size_t size, size_t size_wanted) {
  count(OS_CALL_REMAP);
  return mremap(address, size, size_wanted, 0) != MAP_FAILED;
}

bool os_move(void *address, size_t size, void *target, size_t size_wanted) {
  count(OS_CALL_REMAP);
  return mremap(address, size, size_wanted, MREMAP_MAYMOVE | MREMAP_FIXED, target) != MAP_FAILED;
}

void os_futex_wait(_Atomic uint32_t *word, uint32_t expected) {
  count(OS_CALL_FUTEX);
  syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, NULL, NULL, 0);
}

void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  count(OS_CALL_FUTEX);
  syscall(SYS_futex, word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, &timeout, NULL, 0);
}

void os_futex_wake(_Atomic uint32_t *word) {
  count(OS_CALL_FUTEX);
  syscall(SYS_futex, word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG, 1, NULL, NULL, 0);
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

/* By system call, not by write(): that is a cancellation point. */
void os_write(int fd, const char *bytes, size_t length) {
  int kept = errno;
  while (length > 0) {
    long written = syscall(SYS_write, fd, bytes, length);
    if (written < 0 && errno == EINTR)
      continue;
    if (written <= 0)
      break;
    bytes += written;
    length -= (size_t)written;
  }
  errno = kept;
}

int os_duplicate_above(int fd, int lowest) {
  int kept = errno;
  int duplicate = fcntl(fd, F_DUPFD_CLOEXEC, lowest);
  errno = kept;
  return duplicate;
}

struct os_file os_file_identity(int fd) {
  struct stat status;
  int kept = errno;
  bool known = fstat(fd, &status) == 0;
  errno = kept;
  return known ? (struct os_file){.device = status.st_dev, .inode = status.st_ino} : (struct os_file){0};
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

int os_process_id(void) { return (int)getpid(); }

/* A field "KEY: N kB" of /proc/self/status, in bytes; 0 where it cannot be read. */
static uint64_t status_field(const char *key) {
  char text[4096];
  int kept = errno;
  uint64_t kib = 0;
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/status", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    long length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
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
  count(OS_CALL_OTHER);
  int fd = (int)syscall(SYS_openat, AT_FDCWD, "/proc/self/statm", O_RDONLY | O_CLOEXEC);
  if (fd >= 0) {
    long length = syscall(SYS_read, fd, text, sizeof text - 1);
    syscall(SYS_close, fd);
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
  count(OS_CALL_OTHER);
  *out = (struct os_usage){.resident_peak_bytes = status_field("VmHWM:")};
  if (getrusage(RUSAGE_SELF, &usage) != 0)
    return;
  out->faults_minor = (uint64_t)usage.ru_minflt;
  out->faults_major = (uint64_t)usage.ru_majflt;
}

/* A robust mutex stays locked when its holder dies; the kernel marks it then, and the next trylock
 * says EOWNERDEAD. Without robust mutexes (some emulators) the thread id is asked after: ESRCH means
 * the holder is gone; an id that another of our threads got since then only delays. */
static bool robust_mutexes_work(void) {
  static _Atomic int known; /* 1 no, 2 yes */
  int state = atomic_load_explicit(&known, memory_order_relaxed);
  if (state == 0) {
    void *head = NULL;
    size_t length;
    count(OS_CALL_OTHER);
    state = syscall(SYS_get_robust_list, 0, &head, &length) == 0 && head != NULL ? 2 : 1;
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
    count(OS_CALL_OTHER);
    if (syscall(SYS_tgkill, getpid(), holder, 0) == 0 || errno != ESRCH)
      return false;
  }
  return atomic_compare_exchange_strong_explicit(&line->thread_id, &holder, (int)syscall(SYS_gettid),
                                                 memory_order_acq_rel, memory_order_relaxed);
}

void lifeline_drop(struct lifeline *line) {
  if (atomic_load_explicit(&line->thread_id, memory_order_relaxed) == -1)
    pthread_mutex_unlock(&line->mutex);
  else
    atomic_store_explicit(&line->thread_id, 0, memory_order_release);
}

/* Address space; the C library puts the program's thread-local storage there too. */
#define THREAD_STACK_BYTES ((size_t)1 << 20)

typedef int thread_create(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static thread_create *library_create = pthread_create;

void os_thread_prepare(void) {
#ifndef HAK_TSAN /* which must see our threads */
  void *found = dlsym(RTLD_NEXT, "pthread_create");
  if (found)
    memcpy(&library_create, &found, sizeof found);
#endif
}

bool os_thread_start(void *(*run)(void *)) {
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  if (pthread_attr_init(&attributes) != 0)
    return false;
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  pthread_attr_setinheritsched(&attributes, PTHREAD_EXPLICIT_SCHED);
  pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
  sigfillset(&all);
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int result = library_create(&thread, &attributes, run, NULL);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  return result == 0;
}

void os_thread_name(const char *name) { pthread_setname_np(pthread_self(), name); }

void os_at_thread_end(void (*end)(void *)) {
  static pthread_key_t key;
  static bool made;
  if (!made)
    made = pthread_key_create(&key, end) == 0;
  if (made)
    pthread_setspecific(key, (void *)end);
}
