/* A signal handler sets options while the program that it interrupts allocates and sets options, too: neither waits
 * for the other. */
#include "../child.h"
#include "../reclaim/again.h"

#define PERIOD_US 200
#define BLOCKS 100

static __typeof__(&hak_option_set) option_set;
static volatile sig_atomic_t handled;
static long wanted;

/* Those after which limits are computed anew. */
static void set_all(const char *keep_mb, const char *limit_mb) {
  CHECK(option_set("keep_mb", keep_mb) == 0);
  CHECK(option_set("limit_mb", limit_mb) == 0);
  CHECK(option_set("target_mb", keep_mb) == 0);
}

static void handle(int number) {
  set_all("8", "1000");
  if (++handled == wanted)
    test_alarm_every(0);
}

static void set_and_allocate(void) {
  static void *blocks[BLOCKS];
  wanted = test_rounds(2000, 10);
  signal(SIGALRM, handle);
  test_alarm_every(PERIOD_US);
  for (size_t round = 0; handled < wanted; round++) {
    set_all("9", "900");
    if (round % 16 != 0)
      continue;
    for (size_t i = 0; i < BLOCKS; i++) {
      t_free(blocks[i]);
      blocks[i] = CHECK_GOT(t_malloc(1 + (i * 7919 + round) % (i % 10 ? 3000 : 400000)));
    }
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  option_set = TEST_HAK(hak_option_set);
  CHECK(option_set != NULL);
  test_in_child(set_and_allocate);
}
