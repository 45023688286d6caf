/* HAKMEM_LIMIT_MB: what is held stays below it. A request beyond gets NULL and ENOMEM and the program lives; what
 * it frees can be had again. The callback is asked first.
 *     limit_mb fill SIZE    blocks of one size until NULL: at least 60 % of the limit was given, at most all of it
 *     limit_mb checked SIZE the same with checked blocks: their states count, too
 *     limit_mb random       sizes of all kinds, realloc and calloc, by three threads
 *     limit_mb callback     when, how often and on which thread it is called
 */
#include <sys/mman.h>

#include "../reclaim/again.h"
#include "../threads.h"

static size_t limit_mb = 64;
#define TOO_MUCH ((limit_mb + 1) * MIB)
#define BLOCKS_MAX (2 << 20)

static char **blocks;

static size_t fill(size_t size) {
  size_t count = 0;
  for (; count < BLOCKS_MAX && count * size < TOO_MUCH; count++) {
    errno = 0;
    char *block = t_malloc(size);
    if (block == NULL)
      break;
    block[0] = block[size - 1] = (char)count;
    blocks[count] = block;
  }
  CHECK_SAY(count < BLOCKS_MAX && count * size < TOO_MUCH && errno == ENOMEM, "%zu blocks, errno %d", count, errno);
  return count;
}

static void fill_and_free(size_t size) {
  size_t first = 0;
  long before_kib = test_rss_kib();
  for (int round = 0; round < (TEST_SANITIZED ? 2 : 6); round++) {
    size_t count = fill(size);
    size_t got = count * size;
    CHECK_SAY(got >= limit_mb * MIB / 10 * 6 && got <= limit_mb * MIB, "%zu blocks of %zu", count, size);
    if (round == 0)
      first = count;
    CHECK_SAY(count >= first - first / 8, "%zu at first, then %zu", first, count);
    long grown_kib = test_rss_kib() - before_kib - (long)(count * sizeof *blocks / 1024);
    CHECK_SAY(!TEST_RSS_COUNTS || grown_kib < (long)(limit_mb + 3) * 1024, "RSS grew by %ld KiB", grown_kib);
    errno = 0;
    CHECK(t_calloc(limit_mb * MIB, 2) == NULL && errno == ENOMEM);
    errno = 0;
    CHECK(t_realloc(blocks[0], limit_mb * MIB + 1) == NULL && errno == ENOMEM);
    for (size_t i = 0; i < count; i++) {
      CHECK(blocks[i][0] == (char)i && blocks[i][size - 1] == (char)i);
      if (round % 2 == 0 || i % 2)
        t_free(blocks[i]);
    }
    if (round % 2) { /* half of them: there is room again at once */
      char *again = CHECK_GOT(t_malloc(size));
      t_free(again);
      for (size_t i = 0; i < count; i += 2)
        t_free(blocks[i]);
    }
  }
}

static _Atomic long refusals;

static void *random_use(void *argument) {
  uint64_t seed = (uintptr_t)argument;
  enum { LIVE = 400 };
  static __thread struct {
    unsigned char *block;
    size_t size;
  } live[LIVE];
  for (long step = test_rounds(30000, 20); step > 0; step--) {
    unsigned i = (unsigned)(test_random(&seed) % LIVE);
    size_t size = 16 + test_random(&seed) % (test_random(&seed) % 8 ? 3000 : test_random(&seed) % 4 ? 300000 : 6000000);
    unsigned char tag = (unsigned char)(i * 7 + size);
    errno = 0;
    unsigned char *block;
    if (live[i].block) {
      tag = (unsigned char)(i * 7 + live[i].size);
      CHECK(live[i].block[0] == tag && live[i].block[live[i].size - 1] == tag);
      if (test_random(&seed) % 4) {
        t_free(live[i].block);
        live[i].block = NULL;
        continue;
      }
      block = t_realloc(live[i].block, size);
      CHECK(block == NULL || block[0] == tag);
      tag = (unsigned char)(i * 7 + size);
    } else {
      block = step % 2 ? t_malloc(size) : t_calloc(1, size);
      CHECK(block == NULL || step % 2 || (block[0] == 0 && block[size - 1] == 0));
    }
    if (block == NULL) {
      CHECK(errno == ENOMEM);
      refusals++;
      continue;
    }
    block[0] = block[size - 1] = tag;
    live[i].block = block;
    live[i].size = size;
  }
  for (unsigned i = 0; i < LIVE; i++)
    t_free(live[i].block);
  return NULL;
}

static void threads_at_random(void) {
  long before_kib = test_rss_kib();
  test_threads_run(3, random_use, (void *)(uintptr_t)test_seed, 1);
  CHECK(refusals > 0);
  CHECK_SAY(!TEST_RSS_COUNTS || test_status("VmHWM:") - before_kib < (long)(limit_mb + 24) * 1024, "peak %ld KiB more",
            test_status("VmHWM:") - before_kib);
}

/* volatile: the compiler believes that malloc calls nothing of this file. */
static volatile struct {
  int calls, depth;
  size_t wanted;
  pthread_t thread;
  void *context;
  char *reserve;  /* what it can give up */
  int answer;     /* without a reserve */
  int allocates;  /* in vain, inside */
  hak_heap *heap; /* which it makes the thread's default, if it is not NULL */
} seen;

static int give_up(size_t wanted_bytes, void *context) {
  CHECK(seen.depth == 0);
  seen.depth++;
  seen.calls++;
  seen.wanted = wanted_bytes;
  seen.context = context;
  seen.thread = pthread_self();
  if (seen.heap)
    CHECK(TEST_HAK(hak_heap_set_default)(seen.heap, NULL) == 0);
  if (seen.allocates) {
    CHECK(t_malloc(TOO_MUCH) == NULL && errno == ENOMEM); /* must not call this again */
    char *small = t_malloc(100);
    t_free(small);
  }
  int answer = seen.answer;
  if (seen.reserve) {
    t_free(seen.reserve);
    seen.reserve = NULL;
    answer = 1;
  }
  seen.depth--;
  return answer;
}

static void *ask_in_thread(void *unused) {
  seen.calls = 0;
  CHECK(t_malloc(TOO_MUCH) == NULL && errno == ENOMEM);
  CHECK(seen.calls == 1 && pthread_equal(seen.thread, pthread_self()));
  return NULL;
}

static void callback(void) {
  void (*set)(hak_limit_callback, void *) = TEST_HAK(hak_limit_callback_set);
  CHECK(set != NULL);
  CHECK(t_malloc(TOO_MUCH) == NULL); /* none is set */
  CHECK(seen.calls == 0);
  int context;
  set(give_up, &context);
  char *some = t_malloc(10 * MIB);
  CHECK(some != NULL && seen.calls == 0); /* there is room: nobody is asked */
  t_free(some);
  for (int allocates = 0; allocates < 2; allocates++) {
    seen.allocates = allocates;
    /* It gives up what the request needs: that succeeds. */
    seen.calls = 0;
    seen.reserve = CHECK_GOT(t_malloc(40 * MIB));
    some = t_malloc(50 * MIB);
    CHECK_SAY(some != NULL && seen.calls == 1 && seen.reserve == NULL, "%p after %d calls", (void *)some, seen.calls);
    CHECK(seen.wanted == 50 * MIB && seen.context == &context && pthread_equal(seen.thread, pthread_self()));
    t_free(some);
    /* It gives up too little, or lies, or has nothing: it is asked once, and the request refused. */
    seen.calls = 0;
    seen.reserve = t_malloc(MIB);
    CHECK(t_malloc(TOO_MUCH) == NULL && errno == ENOMEM && seen.calls == 1);
    for (seen.answer = 0; seen.answer < 2; seen.answer++) {
      seen.calls = 0;
      CHECK(t_malloc(TOO_MUCH) == NULL && errno == ENOMEM && seen.calls == 1);
    }
    seen.answer = 0;
  }
  /* It is the thread's, whichever heap is the default. */
  seen.heap = TEST_HAK(hak_heap_new)(0);
  CHECK(seen.heap != NULL);
  for (int round = 0; round < 2; round++) {
    seen.calls = 0;
    CHECK(t_malloc(TOO_MUCH) == NULL && errno == ENOMEM && seen.calls == 1);
    CHECK(TEST_HAK(hak_heap_set_default)(NULL, NULL) == 0);
  }
  seen.heap = NULL;
  test_thread_run(ask_in_thread, NULL);
  /* For small blocks, too. */
  seen.allocates = 0;
  seen.calls = 0;
  seen.reserve = CHECK_GOT(t_malloc(20 * MIB));
  size_t count = 0, at_call = 0;
  char *block;
  for (; count < BLOCKS_MAX && (block = t_malloc(1000)) != NULL; count++) {
    blocks[count] = block;
    if (seen.calls == 1 && at_call == 0)
      at_call = count;
  }
  CHECK_SAY(at_call > 0 && count - at_call > 15 * MIB / 1024, "asked after %zu blocks, %zu in all", at_call, count);
  CHECK(seen.calls == 2);
  set(NULL, NULL);
  CHECK(t_malloc(1000) == NULL && seen.calls == 2);
  while (count > 0)
    t_free(blocks[--count]);
  some = CHECK_GOT(t_malloc(50 * MIB));
  t_free(some);
}

int main(int argc, char **argv) {
  int is_checked = argc > 1 && strcmp(argv[1], "checked") == 0;
  if (is_checked && TEST_TSAN) /* a million blocks take long */
    limit_mb = 32;
  test_begin_with(argc, argv, "HAKMEM_LIMIT_MB", limit_mb == 32 ? "32" : "64", is_checked ? "HAKMEM_PROFILE" : NULL,
                  "secure");
  blocks = mmap(NULL, BLOCKS_MAX * sizeof *blocks, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(blocks != MAP_FAILED);
  const char *mode = argc > 1 ? argv[1] : "callback";
  if (strcmp(mode, "fill") == 0 || is_checked)
    fill_and_free(strtoul(argv[2], NULL, 10));
  else if (strcmp(mode, "random") == 0)
    threads_at_random();
  else
    callback();
}
