/* os_clock.c: futexes and clocks. */
#include "base/counters.h"
#include "os/os.h"

#include "os/filter.h"
#include "os/kernel.h"

#include <elf.h>
#include <link.h>
#include <linux/futex.h>
#include <sched.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/syscall.h>
#include <time.h>

/* timeout_ms UINT64_MAX: no timeout. */
static long futex_wait(_Atomic uint32_t *word, int operation, uint32_t expected, uint64_t timeout_ms) {
  KEEP_ERRNO;
  struct timespec timeout = {.tv_sec = (time_t)(timeout_ms / 1000), .tv_nsec = (long)(timeout_ms % 1000) * 1000000};
  counter_note(calls_futex);
  return os_kernel(SYS_futex, word, operation, expected, timeout_ms == UINT64_MAX ? NULL : &timeout, NULL, 0);
}

static void futex_wake(_Atomic uint32_t *word, int operation) {
  KEEP_ERRNO;
  counter_note(calls_futex);
  os_kernel(SYS_futex, word, operation, 1, NULL, NULL, 0);
}

void os_futex_wait_for(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  futex_wait(word, FUTEX_WAIT | FUTEX_PRIVATE_FLAG, expected, timeout_ms);
}

void os_futex_wake(_Atomic uint32_t *word) { futex_wake(word, FUTEX_WAKE | FUTEX_PRIVATE_FLAG); }

bool os_futex_wait_shared(_Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  return futex_wait(word, FUTEX_WAIT, expected, timeout_ms) == 0;
}

void os_futex_wake_shared(_Atomic uint32_t *word) { futex_wake(word, FUTEX_WAKE); }

void os_spin_hint(void) {
#if defined(__x86_64__)
  __builtin_ia32_pause();
#elif defined(__aarch64__)
  __asm__ volatile("yield");
#endif
}

struct image {
  uintptr_t bias; /* address of what its program headers place at 0 */
  const ElfW(Dyn) * dynamic;
};

static struct image find_image(void) {
  struct image image = {0};
  uintptr_t base = getauxval(AT_SYSINFO_EHDR);
  if (base == 0)
    return image;
  const ElfW(Ehdr) *header = (const void *)base;
  const ElfW(Phdr) *segment = (const void *)(base + header->e_phoff);
  for (unsigned i = 0; i < header->e_phnum; i++)
    if (segment[i].p_type == PT_LOAD)
      image.bias = base + segment[i].p_offset - segment[i].p_vaddr;
    else if (segment[i].p_type == PT_DYNAMIC)
      image.dynamic = (const void *)(base + segment[i].p_offset);
  return image;
}

/* The kernel relocates nothing in the image: addresses are as they were linked. */
static const void *find_table(const struct image *image, ElfW(Sxword) tag) {
  for (const ElfW(Dyn) *entry = image->dynamic; entry && entry->d_tag != DT_NULL; entry++)
    if (entry->d_tag == tag)
      return (const void *)(image->bias + entry->d_un.d_ptr);
  return NULL;
}

/* Returns a function that the kernel maps into each process; NULL: there is none. The table of symbols has no length of
 * its own. Their names lie behind it, but other sections may lie between, whose bytes name nothing. */
static COLD void *vdso_function(const char *name) {
  struct image image = find_image();
  const ElfW(Sym) *symbol = find_table(&image, DT_SYMTAB);
  const char *names = find_table(&image, DT_STRTAB);
  uintptr_t names_bytes = (uintptr_t)find_table(&image, DT_STRSZ) - image.bias; /* a length, which is no address */
  for (; symbol && (const char *)(symbol + 1) <= names; symbol++)
    if (symbol->st_shndx != SHN_UNDEF && symbol->st_name < names_bytes && strcmp(names + symbol->st_name, name) == 0)
      return (void *)(image.bias + symbol->st_value);
  return NULL;
}

#if defined(__x86_64__)
#define VDSO_CLOCK "__vdso_clock_gettime"
#elif defined(__aarch64__)
#define VDSO_CLOCK "__kernel_clock_gettime"
#endif

typedef int clock_read(clockid_t, struct timespec *);
static int kernel_clock(clockid_t clock, struct timespec *out) { return (int)os_kernel(SYS_clock_gettime, clock, out); }
static _Atomic(clock_read *) found_clock;

static COLD clock_read *find_clock(void) {
  void *function = vdso_function(VDSO_CLOCK);
  clock_read *clock = kernel_clock;
  if (function)
    memcpy(&clock, &function, sizeof clock);
  store_relaxed(&found_clock, clock);
  return clock;
}

/* Not libc's clock_gettime: a simulator, or a library that shows a program another time, replaces it by one that may
 * stand still, fail or call malloc. */
static struct timespec read_clock(clockid_t id) {
  struct timespec now = {0};
  clock_read *clock = load_relaxed(&found_clock);
  if (UNLIKELY(clock == NULL))
    clock = find_clock();
  clock(id, &now);
  return now;
}

uint64_t os_milliseconds(void) {
  struct timespec now = read_clock(CLOCK_MONOTONIC_COARSE);
  return (uint64_t)now.tv_sec * 1000 + (uint64_t)now.tv_nsec / 1000000;
}

uint64_t os_nanoseconds_of(int clock) {
  struct timespec now = read_clock(clock);
  return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

uint64_t os_nanoseconds(void) { return os_nanoseconds_of(CLOCK_MONOTONIC); }

COLD void os_yield(void) {
  static _Atomic uint32_t nothing;
  if (os_may_call())
    sched_yield();
  else
    os_futex_wait_for(&nothing, 0, 1);
}
