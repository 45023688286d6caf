/* fork() in a signal handler that interrupts malloc and free, as reporters of crashes do: the program goes on, and the
 * child can allocate. */
#include "../child.h"
#include "../heap_api.h"

#define PERIOD_US 1000
#define BLOCKS 20000
#define BLOCK_BYTES 500 /* of all of them: many slabs, so often in the slow path */

static volatile sig_atomic_t forks;
static long wanted;

static void handle(int number) {
  TEST_IN_CHILD {
    char *report = CHECK_GOT(t_malloc(5000));
    report[0] = report[4999] = 1;
    t_free(report);
  }
  if (++forks == wanted)
    test_alarm_every(0);
}

static void allocate(void) {
  static char *blocks[BLOCKS];
  wanted = test_rounds(400, 10);
  signal(SIGALRM, handle);
  test_alarm_every(PERIOD_US);
  while (forks < wanted) {
    for (int i = 0; i < BLOCKS; i++) {
      blocks[i] = CHECK_GOT(t_malloc(BLOCK_BYTES));
      blocks[i][0] = (char)i;
    }
    for (int i = 0; i < BLOCKS; i++) {
      CHECK(blocks[i][0] == (char)i);
      t_free(blocks[i]);
    }
  }
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  test_in_child(allocate);
}
