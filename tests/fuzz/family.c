/* The malloc family, one thread: each block is compared with its shadow; options change, profiles begin and end; a
 * child of a fork goes on with the same heap. */
#include "calls.h"

#include "../child.h"

enum { FORK_ONE_IN = 16 }; /* a fork costs as much as thousands of calls */

static void play(struct player *player, bool may_fork) {
  uint32_t slot;
  while (!player_is_done(player)) {
    if (player_step(player, &slot) != CALL_OTHER || !may_fork)
      continue;
    may_fork = false;
    pid_t child = test_fork();
    if (child == 0) {
      play(player, false);
      player_end(player);
      _exit(0);
    }
    int status;
    pid_t ended;
    do /* libFuzzer's timer interrupts */
      ended = waitpid(child, &status, 0);
    while (ended < 0 && errno == EINTR);
    CHECK(ended == child);
    CHECK_SAY(status == 0, "the child ended with status 0x%x", status);
  }
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct player player;
  player_begin(&player, (struct fuzz_input){data, data + size}, 0);
  play(&player, fuzz_number(&player.input, 1) % FORK_ONE_IN == 0);
  player_end(&player);
  calls_end();
  return 0;
}
