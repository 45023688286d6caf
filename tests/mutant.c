/* mutant.c: hak_* over libc with one fault, chosen by MUTANT. A test linked with it must fail: that is the
 * test's positive control. SOUND has no fault. */
#include <errno.h>
#include <malloc.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "hakmem/hakmem.h"

enum mutant {
  SOUND,
  OVERLAP,         /* a live block is given out again */
  ALIGNMENT,       /* some addresses are 8 bytes off */
  ZEROING,         /* calloc's last byte is not zero */
  CONTENTS,        /* realloc changes a byte */
  USABLE_SHORT,    /* the usable size is less than was asked for */
  USABLE_UNSTABLE, /* the usable size changes */
  SCRIBBLE,        /* malloc writes into another block */
  LEAK,            /* free does nothing */
  FORK_LOCK,       /* a lock that fork does not know */
  ERRNO,           /* free changes errno */
  WRAP,            /* count * size wraps */
  STINGY,          /* NULL long before memory is out */
  GUARDED,         /* each block is a mapping with a page behind it that faults */
  OPTION_LOCK,     /* a lock around the options, held while limits are computed */
  RESERVING,       /* a realloc in vain leaves address space reserved */
  GREEDY,          /* each malloc maps 16 MiB beside its block */
  TOUCHING,        /* the same, and some of their pages are written */
  FORK_WAITS,      /* fork's handlers, and the program's end, wait for the lock */
  FORK_PAGES,      /* a fork's child writes to a page for each block that was given out */
  RAW_FORK,        /* a child that fork's handlers did not prepare waits for ever */
  REENTERED,       /* a signal handler gets the block that malloc is about to return */
};

extern const char test_is_control;
const char test_is_control = 1;

static _Atomic unsigned calls;
static _Atomic size_t given_bytes;
static __thread void *previous;
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* A prime, so that no loop of a test keeps in step with it. */
static int due(void) { return ++calls % 997 == 0; }

/* libc's free would find the faults of these and end the program before the test says anything. */
static int frees_nothing(void) {
  return MUTANT == OVERLAP || MUTANT == ALIGNMENT || MUTANT == SCRIBBLE || MUTANT == LEAK || MUTANT == GUARDED ||
         MUTANT == REENTERED;
}

static void lock_take(void) {
  if (MUTANT == FORK_LOCK || MUTANT == FORK_WAITS)
    pthread_mutex_lock(&lock);
}

static void lock_give(void) {
  if (MUTANT == FORK_LOCK || MUTANT == FORK_WAITS)
    pthread_mutex_unlock(&lock);
}

static pid_t prepared; /* the process that fork's handlers know */

static void prepare_child(void) { prepared = getpid(); }

static void wait_if_unprepared(void) {
  while (MUTANT == RAW_FORK && getpid() != prepared)
    pause();
}

enum { TOUCHED_PAGES = 4096 };
static char *touched;

static void touch_pages(void) {
  for (unsigned i = 0; i < calls && i < TOUCHED_PAGES; i++)
    touched[(size_t)i * 4096] = 1;
}

__attribute__((constructor)) static void begin(void) {
  if (MUTANT == FORK_WAITS)
    pthread_atfork(lock_take, lock_give, lock_give);
  if (MUTANT == RAW_FORK) {
    prepare_child();
    pthread_atfork(NULL, NULL, prepare_child);
  }
  if (MUTANT == FORK_PAGES) {
    touched = mmap(NULL, TOUCHED_PAGES * 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    madvise(touched, TOUCHED_PAGES * 4096, MADV_NOHUGEPAGE);
    pthread_atfork(NULL, NULL, touch_pages);
  }
}

__attribute__((destructor)) static void end(void) {
  if (MUTANT == FORK_WAITS)
    lock_take();
}

/* A signal handler may run in the system call, where the block is not taken yet. No block is used again. */
static void *reentered_malloc(size_t size) {
  enum { CHUNK_BYTES = 64 << 20 };
  static __thread char *unused, *end;
  size = (size + 15) & ~(size_t)15;
  if ((size_t)(end - unused) < size) {
    unused = mmap(NULL, CHUNK_BYTES, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    end = unused + CHUNK_BYTES;
  }
  char *block = unused;
  getppid();
  unused = block + size;
  return block;
}

void *hak_malloc(size_t size) {
  if (MUTANT == STINGY && atomic_fetch_add(&given_bytes, size) > (size_t)64 << 20) {
    errno = ENOMEM;
    return NULL;
  }
  if (MUTANT == OVERLAP && size >= 16 && size < 500 && due() && previous && malloc_usable_size(previous) >= size)
    return previous;
  if (MUTANT == GUARDED && size > 256) {
    size_t bytes = (size + 4095) / 4096 * 4096;
    char *pages = mmap(NULL, bytes + 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    return pages == MAP_FAILED || mprotect(pages + bytes, 4096, PROT_NONE) != 0 ? NULL : pages;
  }
  if (MUTANT == GREEDY || MUTANT == TOUCHING) {
    size_t bytes = (size_t)16 << 20;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    char *beside = mmap(NULL, bytes, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (beside == MAP_FAILED) {
      errno = ENOMEM;
      return NULL;
    }
    if (MUTANT == TOUCHING)
      memset(beside, 1, (size_t)64 << 10);
  }
  if (MUTANT == REENTERED)
    return reentered_malloc(size);
  if (MUTANT == FORK_PAGES)
    calls++;
  wait_if_unprepared();
  lock_take();
  void *block = malloc(size);
  lock_give();
  if (MUTANT == ALIGNMENT && due())
    return (char *)block + 8;
  if (MUTANT == SCRIBBLE && due() && previous)
    ((char *)previous)[0] ^= 1;
  if (MUTANT == OVERLAP || MUTANT == SCRIBBLE)
    previous = block;
  return block;
}

void *hak_calloc(size_t count, size_t size) {
  void *block = MUTANT == WRAP ? calloc(1, count * size) : calloc(count, size);
  if (MUTANT == ZEROING && block && count * size > 8)
    ((char *)block)[count * size - 1] = 1;
  return block;
}

void *hak_realloc(void *block, size_t size) {
  void *moved = realloc(block, size);
  if (MUTANT == CONTENTS && moved && size > 8 && due())
    ((char *)moved)[size / 2] ^= 1;
  if (MUTANT == RESERVING && moved == NULL && size > 0)
    (void)mmap(NULL, size, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return moved;
}

void *hak_reallocarray(void *block, size_t count, size_t size) {
  if (MUTANT != WRAP && size && count > SIZE_MAX / size) {
    errno = ENOMEM;
    return NULL;
  }
  return realloc(block, count * size);
}

void hak_free(void *block) {
  if (MUTANT == REENTERED && block)
    memset(block, 0xff, 16); /* as the links of a free block would */
  if (frees_nothing())
    return;
  lock_take();
  free(block);
  lock_give();
  if (MUTANT == ERRNO)
    errno = EINVAL;
}

void *hak_aligned_alloc(size_t alignment, size_t size) { return memalign(alignment, size); }

/* Heaps that share libc's, and whose end frees nothing. */
hak_heap *hak_heap_new(size_t limit_bytes) { return malloc(1 + limit_bytes % 2); }
int hak_heap_destroy(hak_heap *heap) { return heap == NULL; }
void *hak_heap_malloc(hak_heap *heap, size_t size) { return heap ? hak_malloc(size) : NULL; }
void *hak_heap_calloc(hak_heap *heap, size_t count, size_t size) { return heap ? hak_calloc(count, size) : NULL; }
void *hak_heap_aligned_alloc(hak_heap *heap, size_t alignment, size_t size) {
  return heap ? memalign(alignment, size) : NULL;
}
void *hak_heap_realloc(hak_heap *heap, void *block, size_t size) { return heap ? hak_realloc(block, size) : NULL; }
void hak_heap_free(hak_heap *heap, void *block) { hak_free(heap ? block : NULL); }
int hak_heap_set_default(hak_heap *heap, hak_heap **before) { return heap == NULL && before != NULL; }
int hak_heap_trim(hak_heap *heap) { return heap == NULL; }
int hak_heap_stats_get(hak_heap *heap, struct hak_heap_stats *out) {
  *out = (struct hak_heap_stats){0};
  return heap == NULL;
}

int hak_posix_memalign(void **out, size_t alignment, size_t size) { return posix_memalign(out, alignment, size); }

size_t hak_usable_size(const void *block) {
  size_t usable = malloc_usable_size((void *)(uintptr_t)block);
  if (MUTANT == USABLE_SHORT && usable > 8 && due())
    return usable - 8;
  if (MUTANT == USABLE_UNSTABLE && usable > 1024 && ++calls % 2)
    return usable - 1;
  return usable;
}

int hak_trim(size_t keep_bytes) { return 0; }

int hak_stats_get(struct hak_stats *out) {
  memset(out, 0, sizeof *out);
  return 0;
}

int hak_option_set(const char *name, const char *value) {
  if (MUTANT == OPTION_LOCK)
    pthread_mutex_lock(&lock);
  for (volatile int i = 0; MUTANT == OPTION_LOCK && i < 1000; i++) { /* a handler surely comes in that time */
  }
  if (MUTANT == OPTION_LOCK)
    pthread_mutex_unlock(&lock);
  return 0;
}

void hak_limit_callback_set(hak_limit_callback callback, void *context) {}
