/* A large block that cannot grow where it lies moves without the address space of both places, and whatever is refused
 * on the way, nothing stays behind.
 *     realloc_moves limited    RLIMIT_AS leaves room for the difference only; afterwards for what is live
 *     realloc_moves parts      the program locked or advised a part of the block: its pages cannot be moved
 *     realloc_moves growing    as a list grows, by an eighth: nearly all of the limit can be used
 *     realloc_moves refused    what RLIMIT_DATA refuses leaves the block and the address space as they were
 */
#include <sys/mman.h>
#include <sys/resource.h>

#include "../heap_api.h"

/* Nothing right above a mapping: then it would grow where it lies. */
static void pin_end(char *block) {
  char *end = (char *)(((uintptr_t)block + t_usable_size(block) + 4095) & ~(uintptr_t)4095);
  void *pin = mmap(end, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED_NOREPLACE, -1, 0);
  CHECK(pin == end || (pin == MAP_FAILED && errno == EEXIST));
}

static void limit_to(int what, size_t bytes) {
  struct rlimit limit;
  CHECK(getrlimit(what, &limit) == 0);
  limit.rlim_cur = bytes;
  CHECK(setrlimit(what, &limit) == 0);
}

static void limit_more(size_t bytes) { limit_to(RLIMIT_AS, (size_t)test_status("VmSize:") * 1024 + bytes); }

static void limited(void) {
  const size_t before = 500 * MIB, after = 1000 * MIB;
  long start_kib = test_status("VmSize:");
  char *block = CHECK_GOT(t_malloc(before));
  for (size_t i = 0; i < before; i += 4096)
    block[i] = (char)(i >> 12);
  pin_end(block);
  limit_more(after - before + 16 * MIB);
  errno = 4242;
  block = t_realloc(block, after);
  CHECK_SAY(block != NULL, "%zu MiB to %zu", before / MIB, after / MIB);
  CHECK_SAY(errno == 4242, "errno %d", errno);
  for (size_t i = 0; i < before; i += 4096)
    CHECK(block[i] == (char)(i >> 12));
  block[after - 1] = 1;
  t_free(block);
  t_trim(0);
  long left_kib = test_status("VmSize:") - start_kib;
  CHECK_SAY(left_kib < 8 * 1024, "%ld KiB of address space are left", left_kib);
}

static void parts(void) {
  const size_t bytes = 64 * MIB;
  long most_kib = 0;
  for (int round = 0; round < 12; round++) {
    char *block = CHECK_GOT(t_malloc(bytes));
    memset(block, round, bytes);
    pin_end(block);
    char *part = (char *)(((uintptr_t)block + 8 * MIB) & ~(uintptr_t)65535);
    CHECK(madvise(part, MIB, MADV_DONTDUMP) == 0);
    if (round % 2)
      CHECK(mlock(part + 24 * MIB, 8192) == 0);
    block = t_realloc(block, 2 * bytes);
    CHECK(block != NULL && block[0] == round && block[bytes - 1] == round);
    t_free(block);
    t_trim(0);
    long now_kib = test_status("VmSize:");
    if (round < 4)
      most_kib = now_kib > most_kib ? now_kib : most_kib;
    else
      CHECK_SAY(now_kib < most_kib + 64 * 1024, "%ld KiB of address space after %d rounds, %ld at first", now_kib,
                round, most_kib);
  }
}

static void growing(void) {
  const size_t limit = 1000 * MIB;
  limit_more(limit);
  size_t bytes = 40 * MIB;
  char *block = t_malloc(bytes), *longer;
  while (block && (longer = t_realloc(block, bytes + bytes / 8)) != NULL) {
    block = longer;
    bytes += bytes / 8;
    pin_end(block);
  }
  CHECK_SAY(bytes > limit / 10 * 8, "%zu MiB under a limit of %zu", bytes / MIB, limit / MIB);
  t_free(block);
}

static void refused(void) {
  const size_t bytes = 64 * MIB;
  char *block = CHECK_GOT(t_malloc(bytes));
  memset(block, 7, bytes);
  limit_to(RLIMIT_DATA, 400 * MIB);
  long before_kib = test_status("VmSize:");
  for (int i = 0; i < 50; i++) {
    errno = 0;
    CHECK(test_opaque(t_realloc(block, 1024 * MIB)) == NULL && errno == ENOMEM);
  }
  long grown_kib = test_status("VmSize:") - before_kib;
  CHECK_SAY(grown_kib < 16 * 1024, "the address space grew by %ld KiB", grown_kib); /* tables */
  for (size_t i = 0; i < bytes; i += 1000)
    CHECK(block[i] == 7);
  block = CHECK_GOT(t_realloc(block, 2 * bytes)); /* for which there is room */
  CHECK(block[bytes - 1] == 7);
  t_free(block);
}

static const struct {
  const char *name;
  void (*run)(void);
} modes[] = {{"limited", limited}, {"parts", parts}, {"growing", growing}, {"refused", refused}};

int main(int argc, char **argv) {
  CHECK(argc > 1);
  test_begin(argc, argv);
  test_skip_if(TEST_SANITIZED, "a sanitizer maps memory of its own");
  for (size_t i = 0; i < sizeof modes / sizeof *modes; i++)
    if (strcmp(argv[1], modes[i].name) == 0)
      modes[i].run();
}
