/* What a program may expect of jemalloc's calls. The same assertions hold on jemalloc itself, which is preloaded before
 * libhakmem-jemalloc.so for that (jemalloc.control); --hakmem adds what is hakmem's own. */
#include <pthread.h>
#include <stdbool.h>
#include <sys/time.h>

#include <hakmem/hakmem.h>
#include <jemalloc/jemalloc.h>

#include "../child.h"

size_t malloc_usable_size(void *block);

static bool is_hakmem, is_lie;

#define READ(name, variable)                                                                                           \
  do {                                                                                                                 \
    size_t bytes_ = sizeof(variable);                                                                                  \
    CHECK_SAY(mallctl(name, &(variable), &bytes_, NULL, 0) == 0 && bytes_ == sizeof(variable), "%s", name);            \
  } while (0)

static int write_unsigned(const char *name, unsigned value) { return mallctl(name, NULL, NULL, &value, sizeof value); }

static void refresh(void) {
  uint64_t one = 1;
  CHECK(mallctl("epoch", NULL, NULL, &one, sizeof one) == 0);
}

static bool is_zero(const char *bytes, size_t length) {
  while (length > 0 && *bytes == 0)
    bytes++, length--;
  return length == 0;
}

static void test_blocks(void) {
  static const size_t sizes[] = {1, 16, 100, 1000, 5000, 70000, 300000, 3000000};
  for (size_t i = 0; i < sizeof sizes / sizeof *sizes; i++) {
    for (int lg = 0; lg <= 20; lg += 4) {
      int flags = MALLOCX_LG_ALIGN(lg) | (i & 1 ? MALLOCX_ZERO : 0) | (i & 2 ? MALLOCX_TCACHE_NONE : 0);
      char *block = mallocx(sizes[i], flags);
      CHECK(block != NULL && ((uintptr_t)block & (((uintptr_t)1 << lg) - 1)) == 0);
      size_t usable = sallocx(block, 0);
      CHECK(usable >= sizes[i] && nallocx(sizes[i], flags) >= sizes[i]);
      CHECK(usable == malloc_usable_size(block));
      CHECK_SAY(usable >= nallocx(sizes[i], flags), "%zu: %zu, %zu", sizes[i], usable, nallocx(sizes[i], flags));
      CHECK(!(flags & MALLOCX_ZERO) || is_zero(block, usable));
      memset(block, 0x55, usable);
      if (i & 1)
        sdallocx(block, sizes[i], flags);
      else
        dallocx(block, flags);
    }
  }
  CHECK(MALLOCX_ALIGN(4096) == MALLOCX_LG_ALIGN(12));
  CHECK(nallocx(SIZE_MAX, 0) == 0 && nallocx(PTRDIFF_MAX, 0) <= PTRDIFF_MAX && mallocx(PTRDIFF_MAX, 0) == NULL);
  free(mallocx(100, 0));
  dallocx(malloc(100), 0);
}

static void test_resizing(void) {
  size_t size = 100;
  char *block = mallocx(size, MALLOCX_ZERO);
  size_t known = sallocx(block, 0);
  memset(block, 0x55, known);
  for (; size < 4000000; size = size * 3 + 1) {
    int flags = MALLOCX_ZERO | MALLOCX_ALIGN(size % 2 ? 16 : 256);
    block = rallocx(block, size, flags);
    CHECK(block != NULL && (uintptr_t)block % (size % 2 ? 16 : 256) == 0);
    size_t usable = sallocx(block, 0);
    CHECK(block[0] == 0x55 && block[known - 1] == 0x55 && usable >= size);
    CHECK(usable <= known || is_zero(block + known, usable - known));
    memset(block, 0x55, usable);
    known = usable;
    size_t now = xallocx(block, size, 0, 0);
    CHECK(now == sallocx(block, 0) && now >= size);
    known = now;
    CHECK(xallocx(block, SIZE_MAX / 4, 0, 0) == known); /* there is no such room: nothing changes */
  }
  block = rallocx(block, 50, 0);
  CHECK(block[49] == 0x55 && sallocx(block, 0) >= 50);
  dallocx(block, 0);
}

/* A block that moves to be aligned, with MALLOCX_ZERO, shows nothing of an earlier block. Of what is usable beyond the
 * size that is asked for, hakmem keeps all and jemalloc nothing. */
static void test_aligning(void) {
  enum { SIZE = 100, FLAGS = MALLOCX_LG_ALIGN(12) | MALLOCX_ZERO };
  char *pair[] = {mallocx(SIZE, 0), mallocx(SIZE, 0)}, *other = mallocx(SIZE, FLAGS);
  char *block = pair[(uintptr_t)pair[0] % 4096 == 0]; /* one that is not aligned by chance */
  size_t known = sallocx(block, 0);
  memset(block, 0x55, known);
  memset(other, 0xaa, sallocx(other, 0));
  dallocx(other, 0); /* the next one gets its memory */
  block = rallocx(block, SIZE, FLAGS);
  for (size_t i = 0; i < known; i++)
    CHECK_SAY(block[i] == 0x55 || (i >= SIZE && !is_hakmem && block[i] == 0), "at %zu of %zu", i, known);
  CHECK(is_zero(block + known, sallocx(block, 0) - known));
  dallocx(block, 0);
  dallocx(pair[(uintptr_t)pair[0] % 4096 != 0], 0);
}

static void test_names(void) {
  const char *version;
  bool truth;
  unsigned narenas;
  size_t page, bytes = 1, length = 4, mib[4];
  ssize_t decay, before;
  READ("version", version);
  CHECK((strstr(version, "hakmem") != NULL) == is_hakmem && strncmp(version, "5.", 2) == 0);
  READ("opt.prof", truth);
  READ("config.stats", truth);
  CHECK(truth);
  READ("arenas.narenas", narenas);
  READ("arenas.page", page);
  CHECK(narenas >= 1 && page >= 4096);
  READ("background_thread", truth);
  CHECK(mallctl("background_thread", NULL, NULL, &truth, sizeof truth) == 0);
  CHECK(mallctl("no.such.name", &page, &length, NULL, 0) == ENOENT);
  CHECK(mallctl("stats.allocated.more", &page, &length, NULL, 0) == ENOENT);
  /* Of a value of another length, what fits is read; the rest stays. */
  size_t whole = page, longer[2] = {1, 7};
  page = SIZE_MAX;
  CHECK(mallctl("arenas.page", &page, &bytes, NULL, 0) == EINVAL && bytes == 1);
  CHECK(page == ((SIZE_MAX & ~(size_t)0xff) | (whole & 0xff)));
  bytes = sizeof longer;
  CHECK(mallctl("arenas.page", longer, &bytes, NULL, 0) == EINVAL && bytes == sizeof page);
  CHECK(longer[0] == whole && longer[1] == 7);
  page = whole;
  length = sizeof longer;
  CHECK(mallctl("arenas.create", longer, &length, NULL, 0) == EINVAL && length == 0 && longer[0] == whole);
  CHECK(mallctl("arenas.page", NULL, NULL, &page, sizeof page) == EPERM);
  CHECK(mallctl("thread.tcache.flush", NULL, NULL, NULL, 0) == 0);
  length = sizeof decay;
  CHECK(mallctl("arenas.dirty_decay_ms", &before, &length, NULL, 0) == 0);
  decay = 250;
  CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof decay) == 0);
  decay = 0;
  READ("arenas.dirty_decay_ms", decay);
  CHECK(decay == 250);
  decay = (ssize_t)10 * 3600 * 1000;
  CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof decay) == 0);
  READ("arenas.dirty_decay_ms", decay);
  CHECK(decay == (is_hakmem ? 1 : 10) * 3600 * 1000);
  decay = -1;
  CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &decay, sizeof decay) == 0);
  decay = 0;
  READ("arenas.dirty_decay_ms", decay);
  CHECK(decay == -1);
  CHECK(mallctl("arenas.dirty_decay_ms", NULL, NULL, &before, sizeof before) == 0);

  length = 4;
  CHECK(mallctlnametomib("arena.0.purge", mib, &length) == 0 && length == 3);
  mib[1] = MALLCTL_ARENAS_ALL;
  CHECK(mallctlbymib(mib, 3, NULL, NULL, NULL, 0) == 0);
  length = 4;
  CHECK(mallctlnametomib("stats.allocated", mib, &length) == 0 && length == 2);
  size_t value, partial[2] = {1 << 20, 1 << 20};
  length = 1;
  CHECK(mallctlnametomib("stats.allocated", partial, &length) == 0 && length == 1);
  CHECK(partial[0] == mib[0] && partial[1] == 1 << 20);
  CHECK(mallctlbymib(partial, 1, &value, &bytes, NULL, 0) == ENOENT);
  bytes = sizeof value;
  CHECK(mallctlbymib(mib, 2, &value, &bytes, NULL, 0) == 0);
  CHECK(mallctl("arena.0.decay", NULL, NULL, NULL, 0) == 0);
  CHECK(write_unsigned("arena.0.purge", 1) == EPERM);
  if (is_hakmem)
    CHECK(mallctl("thread.allocatedp", &page, &bytes, NULL, 0) == ENOENT);
}

static void test_figures(void) {
  enum { BYTES = 64 << 20 };
  size_t before, after, active, resident, mapped, retained, metadata;
  refresh();
  READ("stats.allocated", before);
  char *block = mallocx(BYTES, 0);
  memset(block, 1, BYTES);
  READ("stats.allocated", after);
  CHECK(after == before); /* the epoch's, until the next */
  refresh();
  READ("stats.allocated", after);
  READ("stats.active", active);
  READ("stats.resident", resident);
  READ("stats.mapped", mapped);
  READ("stats.retained", retained);
  READ("stats.metadata", metadata);
  CHECK_SAY(after >= before + BYTES && after < before + 2 * (size_t)BYTES, "%zu, %zu", before, after);
  CHECK(after <= active && active <= resident && active <= mapped && metadata > 0);
  if (is_hakmem)
    CHECK(is_lie ? resident < mapped / 2 : resident <= mapped);
  dallocx(block, 0);
  refresh();
  READ("stats.allocated", after);
  CHECK(after < before + BYTES / 2);
}

static void *in_arena(void *argument) {
  unsigned arena = *(unsigned *)argument, now;
  CHECK(write_unsigned("thread.arena", arena) == 0);
  READ("thread.arena", now);
  CHECK(now == arena);
  free(malloc(100));
  void *block = CHECK_GOT(mallocx(100, MALLOCX_ARENA(0) | MALLOCX_TCACHE_NONE));
  CHECK(write_unsigned("thread.arena", 0) == 0);
  return block;
}

static void test_arenas(void) {
  unsigned arena, other, narenas;
  char name[64];
  READ("arenas.create", arena);
  READ("arenas.create", other);
  READ("arenas.narenas", narenas);
  CHECK(arena != other && arena != 0 && narenas > arena && narenas > other);
  char *kept = mallocx(100, MALLOCX_ARENA(other) | MALLOCX_TCACHE_NONE);
  for (int i = 0; i < 1000; i++) {
    char *block = mallocx(5000, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE | MALLOCX_ZERO);
    CHECK(block != NULL && is_zero(block, 5000));
    memset(block, 1, 5000);
  }
  void *outside;
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, in_arena, &arena) == 0 && pthread_join(thread, &outside) == 0);
  refresh();
  size_t small = 0;
  snprintf(name, sizeof name, "stats.arenas.%u.small.allocated", arena);
  READ(name, small);
  CHECK_SAY(small >= 5000000 && small < 20000000, "%zu", small);
  snprintf(name, sizeof name, "arena.%u.reset", arena);
  CHECK(mallctl(name, NULL, NULL, NULL, 0) == 0);
  CHECK(mallocx(5000, MALLOCX_ARENA(arena) | MALLOCX_TCACHE_NONE) != NULL);
  snprintf(name, sizeof name, "arena.%u.destroy", arena);
  CHECK(mallctl(name, NULL, NULL, NULL, 0) == 0);
  memset(kept, 1, 100);
  dallocx(kept, MALLOCX_TCACHE_NONE);
  dallocx(outside, MALLOCX_TCACHE_NONE);

  unsigned cache;
  READ("tcache.create", cache);
  void *block = mallocx(100, MALLOCX_TCACHE(cache));
  dallocx(block, MALLOCX_TCACHE(cache));
  CHECK(write_unsigned("tcache.flush", cache) == 0 && write_unsigned("tcache.destroy", cache) == 0);
}

/* Threads that reset the same arena at a time: each gets the answer that it did, or that it cannot now. */
static void *reset_on(void *name) {
  for (int i = 0; i < 2000; i++) {
    int error = mallctl(name, NULL, NULL, NULL, 0);
    CHECK(error == 0 || error == EFAULT);
  }
  return NULL;
}

static void test_resets_at_a_time(void) {
  unsigned arena;
  char name[64];
  pthread_t threads[2];
  READ("arenas.create", arena);
  snprintf(name, sizeof name, "arena.%u.reset", arena);
  for (int i = 0; i < 2; i++)
    CHECK(pthread_create(&threads[i], NULL, reset_on, name) == 0);
  for (int i = 0; i < 2; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  snprintf(name, sizeof name, "arena.%u.destroy", arena);
  CHECK(mallctl(name, NULL, NULL, NULL, 0) == 0);
}

static volatile sig_atomic_t handled;
static void refresh_in_handler(int number) {
  refresh();
  handled++;
}

/* A handler may ask while the thread that it interrupts does. */
static void test_handler(void) {
  const struct itimerval often = {{0, 200}, {0, 200}}, never = {{0, 0}, {0, 0}};
  signal(SIGALRM, refresh_in_handler);
  CHECK(setitimer(ITIMER_REAL, &often, NULL) == 0);
  while (handled < 20)
    refresh();
  CHECK(setitimer(ITIMER_REAL, &never, NULL) == 0);
}

static void collect(void *context, const char *text) {
  char *all = context;
  strncat(all, text, 99999 - strlen(all));
}

static void test_print(void) {
  static char text[100000];
  malloc_stats_print(collect, text, NULL);
  CHECK(strstr(text, "___ Begin jemalloc statistics ___") && strstr(text, "Allocated: ") &&
        strstr(text, ", retained: "));
  text[0] = 0;
  malloc_stats_print(collect, text, "J");
  CHECK(strstr(text, "\"jemalloc\":{") && strstr(text, "\"allocated\":"));
  if (getenv("TEST_JSON"))
    fputs(text, stdout);
}

/* The child of a fork asks anew. */
static void write_profiling(bool value) { CHECK(mallctl("prof.active", NULL, NULL, &value, sizeof value) == 0); }

/* A program may say again that its profile runs: the samples stay. */
static void test_profile(void) {
  bool truth = false;
  struct hak_stats before, after;
  write_profiling(true);
  void *block = mallocx(64 << 20, 0);
  CHECK(block != NULL && hak_stats_get(&before) == 0 && before.profile_samples > 0);
  write_profiling(true);
  READ("prof.active", truth);
  CHECK(truth && hak_stats_get(&after) == 0 && after.profile_samples >= before.profile_samples);
  CHECK(hak_profile_stop() == 0); /* also in another way */
  READ("prof.active", truth);
  CHECK(!truth);
  dallocx(block, 0);
}

static void test_child(void) {
  pid_t child = fork();
  if (child == 0) {
    size_t allocated;
    void *block = mallocx(1 << 20, 0);
    refresh();
    READ("stats.allocated", allocated);
    _exit(block != NULL && allocated >= 1 << 20 ? 0 : 1);
  }
  test_child_passes(child);
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    is_hakmem |= strcmp(argv[i], "--hakmem") == 0;
    is_lie |= strcmp(argv[i], "--lie") == 0;
  }
  bool is_near = argc > 2 && strcmp(argv[2], "--near") == 0;
  void *most = is_near ? mallocx((size_t)60 << 20, 0) : NULL;
  CHECK((most != NULL) == is_near);
  test_blocks();
  if (argc > 1 && strcmp(argv[1], "--blocks") == 0) /* where memory is short, or HAKMEM_LIMIT_MB=100 is near */
    return 0;
  test_resizing();
  test_aligning();
  test_names();
  test_figures();
  const char *profile = getenv("HAKMEM_PROFILE");
  if (profile == NULL || strcmp(profile, "secure") != 0) /* which has no heaps of the program */
    test_arenas();
  if (is_hakmem && (profile == NULL || strcmp(profile, "secure") != 0))
    test_resets_at_a_time();
  test_print();
  if (is_hakmem) {
    test_profile();
    test_handler();
  }
  test_child();
  if (!getenv("TEST_JSON"))
    printf("ok\n");
}
