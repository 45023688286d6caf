/* The heap works before main, before any constructor, on all-zero state, and the first call of all may
 * be free(NULL). Also in atexit handlers, destructors and after main. */
#include "../heap_api.h"

static int stages;
static char *from_preinit, *from_constructor, *at_exit;

static void preinit(void) {
  t_free(NULL);
  CHECK(t_usable_size(NULL) == 0);
  from_preinit = CHECK_GOT(t_malloc(100));
  memset(from_preinit, 1, 100);
  void *zeroed = t_calloc(10, 10);
  CHECK(zeroed != NULL && *(char *)zeroed == 0);
  t_free(zeroed);
  stages++;
}

#ifdef __GLIBC__
__attribute__((section(".preinit_array"), used)) static void (*preinit_entry)(void) = preinit;
#else /* musl runs no preinit_array: the lowest priority comes closest */
__attribute__((constructor(101))) static void preinit_entry(void) { preinit(); }
#endif

/* Priorities from 101 are open to programs; the ones below are the system's. */
__attribute__((constructor(102))) static void constructor_first(void) {
  CHECK(stages == 1);
  from_preinit = t_realloc(from_preinit, 100000);
  CHECK(from_preinit != NULL && from_preinit[0] == 1 && from_preinit[99] == 1);
  from_constructor = CHECK_GOT(t_malloc(1000000));
  from_constructor[999999] = 3;
  stages++;
}

static void handler(void) {
  CHECK(at_exit[0] == 7);
  t_free(at_exit);
  at_exit = CHECK_GOT(t_malloc(5000));
  at_exit[0] = 8;
}

__attribute__((destructor(101))) static void destructor_last(void) {
  CHECK(at_exit[0] == 8);
  t_free(at_exit);
  void *block = CHECK_GOT(t_malloc(300000));
  t_free(block);
  /* Seen by the runner through the exit status: everything above ran. */
  _exit(stages == 2 ? 0 : 1);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  CHECK(stages == 2);
  CHECK(from_constructor[999999] == 3);
  t_free(from_preinit);
  t_free(from_constructor);
  at_exit = CHECK_GOT(t_malloc(50));
  at_exit[0] = 7;
  CHECK(atexit(handler) == 0);
  puts("early: ok");
  fflush(stdout);
  return 3;
}
