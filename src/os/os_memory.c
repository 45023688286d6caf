/* os_memory.c: mappings and pages. */
#include "base/counters.h"
#include "os/os.h"

#include "os/filter.h"
#include "os/text_file.h"

#include <fcntl.h>
#include <string.h>
#include <sys/auxv.h>
#include <sys/mman.h>
#include <sys/resource.h>

size_t os_page_bytes(void) {
  static _Atomic size_t bytes;
  size_t known = load_relaxed(&bytes);
  if (known == 0) {
    known = getauxval(AT_PAGESZ); /* the auxiliary vector is there before any constructor */
    if (!is_power_of_two(known) || known > UNIT_BYTES)
      known = 4096;
    store_relaxed(&bytes, known);
  }
  return known;
}

#define LIMIT_VALID_MS 1000u /* the program may lift a limit again */

static struct {
  _Atomic size_t bytes; /* 0: not asked yet */
  _Atomic uint64_t asked_ms;
} memory_limit;

static void memory_limit_ask(void) {
  static const int kinds[] = {RLIMIT_AS, RLIMIT_DATA};
  size_t limit = SIZE_MAX;
  for (unsigned i = 0; i < sizeof kinds / sizeof kinds[0]; i++) {
    struct rlimit now;
    counter_note(calls_other);
    if (getrlimit(kinds[i], &now) == 0 && now.rlim_cur != RLIM_INFINITY)
      limit = min_size(limit, max_size((size_t)now.rlim_cur, 1));
  }
  store_relaxed(&memory_limit.asked_ms, os_milliseconds());
  store_relaxed(&memory_limit.bytes, limit);
}

void os_memory_limit_ask_again(void) {
  if (!os_filter_is_own())
    memory_limit_ask();
}

size_t os_memory_limit(void) {
  size_t known = load_relaxed(&memory_limit.bytes);
  if (UNLIKELY(known == 0))
    memory_limit_ask();
  else if (UNLIKELY(known != SIZE_MAX) && os_milliseconds() - load_relaxed(&memory_limit.asked_ms) >= LIMIT_VALID_MS)
    os_memory_limit_ask_again();
  return load_relaxed(&memory_limit.bytes);
}

COLD bool os_commit_is_strict(void) {
  KEEP_ERRNO;
  char mode[8];
  const char *line = os_line_read(os_text_open("/proc/sys/vm/overcommit_memory", O_RDONLY), mode, sizeof mode);
  return line != NULL && *line == '2';
}

#ifndef MADV_COLD /* older headers */
#define MADV_COLD 20
#endif
#ifndef MADV_POPULATE_WRITE /* older headers */
#define MADV_POPULATE_WRITE 23
#endif
#ifndef MADV_COLLAPSE /* older headers */
#define MADV_COLLAPSE 25
#endif

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

static bool advise_pages(void *address, size_t size, int advice) {
  counter_note(calls_advise);
  return madvise(address, size, advice) == 0;
}

/* MAP_NORESERVE is not used, so the kernel refuses here what it can never back, and no OOM kill comes later. hint: the
 * preferred address. */
static void *map_near(uintptr_t hint, size_t size, int protection) {
  counter_note(calls_map);
  void *p = mmap((void *)hint, size, protection, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  KERNEL_ORDERS_ACQUIRE();
  return p == MAP_FAILED ? NULL : p;
}

/* The kernel places mappings side by side. So a plain mapping is often aligned; otherwise the place below it is mostly
 * free. The last way maps more and cuts. The first two map no more than `size`, even for a moment: limits count it. */
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
  char *aligned = (char *)round_up((uintptr_t)p, alignment), *end = p + size + alignment;
  if (aligned > p && os_unmap(p, (size_t)(aligned - p)))
    p = aligned;
  if (p == aligned && (aligned + size == end || os_unmap(aligned + size, (size_t)(end - (aligned + size)))))
    return aligned;
  /* The kernel has joined it with another mapping, and there are too many to cut it. It goes as a whole. */
  os_unmap(p, (size_t)(end - p));
  p = map_near((uintptr_t)aligned, size, protection);
  if (p == aligned || p == NULL)
    return p;
  os_unmap(p, size);
  return NULL;
}

/* Huge pages are hakmem's decision, whatever the system's setting: with `always`, one touched byte would make 2 MiB
 * resident. A short mapping says so too, because the kernel joins neighbours. os_huge takes it back. */
static void *map_plain(size_t size, size_t alignment, int protection) {
  void *p = map_aligned(size, alignment, protection);
  if (p != NULL)
    advise_pages(p, size, MADV_NOHUGEPAGE);
  return p;
}

void *os_reserve(size_t size, size_t alignment) { return map_plain(size, alignment, PROT_NONE); }
void *os_map(size_t size, size_t alignment) { return map_plain(size, alignment, PROT_READ | PROT_WRITE); }

void *os_map_for_this_process(size_t size) {
  void *base = os_map(size, os_page_bytes());
  if (base == NULL)
    return NULL;
  counter_note(calls_other);
  if (madvise(base, size, MADV_WIPEONFORK) == 0)
    return base;
  os_unmap(base, size);
  return NULL;
}

bool os_commit(void *address, size_t size) {
  counter_note(calls_protect);
  return mprotect(address, size, PROT_READ | PROT_WRITE) == 0;
}

bool os_forbid(void *address, size_t size) {
  counter_note(calls_protect);
  return mprotect(address, size, PROT_NONE) == 0;
}

bool os_seal(void *address, size_t size) {
  counter_note(calls_map);
  return mmap(address, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

bool os_purge(void *address, size_t size) { return advise_pages(address, size, MADV_DONTNEED); }
bool os_purge_lazily(void *address, size_t size) { return advise_pages(address, size, MADV_FREE); }
void os_huge(void *address, size_t size) { advise_pages(address, size, MADV_HUGEPAGE); }

void os_huge_split(void *page) {
  KEEP_ERRNO;
  advise_pages(page, os_page_bytes(), MADV_COLD);
}

void os_restore(void *address, size_t size) {
  os_commit(address, size);
  advise_pages(address, size, MADV_DOFORK);
  advise_pages(address, size, MADV_KEEPONFORK);
}

void os_populate(void *address, size_t size) {
  static _Atomic bool is_refused;
  if (load_relaxed(&is_refused) || !os_may_call())
    return;
  KEEP_ERRNO;
  if (!advise_pages(address, size, MADV_POPULATE_WRITE) && errno == EINVAL) /* before Linux 5.14 */
    store_relaxed(&is_refused, true);
}

/* The range refuses huge pages again afterwards, so that it stays one mapping with its neighbours, and so that the
 * kernel does not fill up with huge pages what is purged of it later. */
void os_populate_huge(void *address, size_t size) {
  KEEP_ERRNO;
  os_huge(address, size);
  *(volatile char *)address = 0;
  os_populate(address, size);
  advise_pages(address, size, MADV_NOHUGEPAGE);
}

enum os_collapse os_huge_collapse(void *address, size_t size) {
  KEEP_ERRNO;
  os_huge(address, size);
  int error = advise_pages(address, size, MADV_COLLAPSE) ? 0 : errno;
  advise_pages(address, size, MADV_NOHUGEPAGE);
  return error == 0        ? OS_COLLAPSED
         : error == EINVAL ? OS_COLLAPSE_REFUSED
         : error == ENOMEM ? OS_COLLAPSE_SCARCE
                           : OS_COLLAPSE_BUSY;
}

#define HUGE_FOLDER "/sys/kernel/mm/transparent_hugepage"

static bool setting_is_never(const char *path) {
  char modes[64];
  const char *line = os_line_read(os_text_open(path, O_RDONLY), modes, sizeof modes);
  return line != NULL && strstr(line, "[never]") != NULL;
}

/* From Linux 6.8 on, each length of page has a setting of its own, too. */
bool os_huge_is_forbidden(void) {
  KEEP_ERRNO;
  return os_may_read_files() &&
         (setting_is_never(HUGE_FOLDER "/enabled") || setting_is_never(HUGE_FOLDER "/hugepages-2048kB/enabled"));
}

size_t os_resident_bytes(const void *address, size_t size) {
  if (!os_may_call())
    return 0;
  unsigned char pages[1024];
  size_t page = os_page_bytes(), resident = 0;
  const char *at = address, *end = at + size;
  while (at < end) {
    size_t step = min_size((size_t)(end - at), sizeof pages * page);
    counter_note(calls_other);
    if (mincore((void *)(uintptr_t)at, step, pages) != 0)
      return 0;
    for (size_t i = 0; i < step / page; i++)
      resident += (pages[i] & 1) * page;
    at += step;
  }
  return resident;
}

bool os_unmap(void *address, size_t size) {
  counter_note(calls_unmap);
  KERNEL_ORDERS_RELEASE();
  return munmap(address, size) == 0;
}

bool os_resize(void *address, size_t size, size_t size_wanted) {
  counter_note(calls_remap);
  return mremap(address, size, size_wanted, 0) != MAP_FAILED;
}

static char *move_mapping(char *address, size_t size, size_t size_wanted) {
  counter_note(calls_remap);
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

void *os_move(void *address, size_t size, size_t size_wanted) {
  size_t longer = round_up(size_wanted + UNIT_BYTES, MOVED_ALIGNMENT);
  if (longer < size_wanted)
    return NULL;
  char *moved = move_mapping(address, size, longer);
  if (moved == NULL)
    return NULL;
  if (((uintptr_t)moved & (UNIT_BYTES - 1)) != 0) {
    size_t missing = (uintptr_t)moved & (MOVED_ALIGNMENT - 1);
    char *again = move_mapping(moved, longer, longer + missing);
    if (again != NULL) {
      longer += missing;
      moved = again;
    }
  }
  char *aligned = (char *)round_up((uintptr_t)moved, UNIT_BYTES);
  if (aligned > moved) {
    memmove(aligned, moved, size);
    os_unmap(moved, (size_t)(aligned - moved));
  }
  os_unmap(aligned + size_wanted, (size_t)(moved + longer - (aligned + size_wanted)));
  return aligned;
}
