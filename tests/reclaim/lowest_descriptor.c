/* A program with one thread closes a descriptor and opens a file: it gets the lowest number that is free. No thread of
 * the library may take that number meanwhile. Each child starts the library's thread at another moment. */

#include "../child.h"
#include "../heap_api.h"

#define CHILDREN 30
#define BLOCKS 400
#define BLOCK_BYTES 60000
#define SECONDS 0.1 /* the thread looks for the first time within them */

static void open_again(void) {
  for (double end = test_seconds() + SECONDS; test_seconds() < end;)
    for (int i = 0; i < 100; i++) {
      CHECK(close(0) == 0);
      int number = open("/dev/null", O_RDONLY | O_CLOEXEC);
      CHECK_SAY(number == 0, "open returned %d, but 0 was free", number);
    }
}

static void start_thread(void) {
  static char *blocks[BLOCKS];
  t_fill(blocks, BLOCKS, BLOCK_BYTES, 1);
  t_free_all(blocks, BLOCKS);
}

int main(int argc, char **argv) {
  test_skip_if(TEST_SANITIZED, "a sanitizer has threads of its own");
  test_begin(argc, argv);
  int null = open("/dev/null", O_RDONLY | O_CLOEXEC);
  CHECK(null >= 0 && dup2(null, 0) == 0);
  for (int i = 0; i < CHILDREN; i++) {
    TEST_IN_CHILD {
      start_thread();
      open_again();
    }
  }
}
