/* The malloc family, three threads that hand blocks to each other: each plays a part of the input. */
#include "calls.h"

enum { THREADS = 3, MAILBOXES = 16 };

static _Atomic uint32_t mailboxes[MAILBOXES]; /* record + 1 */

static void *work(void *argument) {
  struct player *player = argument;
  uint32_t slot;
  while (!player_is_done(player))
    if (player_step(player, &slot) == CALL_OTHER)
      player->slots[slot] =
          atomic_exchange_explicit(&mailboxes[slot % MAILBOXES], player->slots[slot], memory_order_acq_rel);
  player_end(player);
  return NULL;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  static struct player players[THREADS];
  pthread_t threads[THREADS];
  for (size_t i = 0; i < THREADS; i++)
    player_begin(&players[i], (struct fuzz_input){data + size * i / THREADS, data + size * (i + 1) / THREADS},
                 (uint32_t)i * CALLS_SLOTS);
  for (unsigned i = 1; i < THREADS; i++)
    CHECK(pthread_create(&threads[i], NULL, work, &players[i]) == 0);
  work(&players[0]);
  for (unsigned i = 1; i < THREADS; i++)
    CHECK(pthread_join(threads[i], NULL) == 0);
  for (unsigned i = 0; i < MAILBOXES; i++) {
    uint32_t number = atomic_exchange(&mailboxes[i], 0);
    if (number && shadow.records[number - 1].address)
      record_free(number - 1);
  }
  calls_end();
  return 0;
}
