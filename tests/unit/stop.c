/* A process that shares our memory (vfork) and ends while it stops our thread leaves nothing behind: the thread starts
 * again later. The end is played by a jump out of the question for the process's id. So it does after our thread was killed
 * alone. */
#include "unit.h"

#include "reclaim/background.h"

static bool is_another, ends;
static jmp_buf end;

TEST_WRAP(int, os_process_id, void) {
  if (ends)
    longjmp(end, 1);
  return __real_os_process_id() + is_another;
}

static void stop_as_another(void) {
  is_another = true;
  background_stop();
  is_another = false;
}

static void stop_and_end(void) {
  ends = true;
  if (setjmp(end) == 0)
    background_stop();
  ends = false;
}

UNIT_TEST(another_process_leaves_no_hold) {
  assert_true(background_wish());
  hak_free(hak_malloc(1 << 20)); /* the thread is there, or about to be */
  stop_as_another();
  assert_true(background_wish());
  stop_and_end();
  assert_true(background_wish());
}

static _Atomic bool is_killed;
TEST_WRAP(bool, os_futex_wait_shared, _Atomic uint32_t *word, uint32_t expected, uint64_t timeout_ms) {
  if (atomic_exchange(&is_killed, false))
    pthread_exit(NULL);
  return __real_os_futex_wait_shared(word, expected, timeout_ms);
}

static void until_awake(void) {
  for (uint64_t until_ms = os_milliseconds() + 1000 * TEST_PATIENCE_SECONDS; !background_is_awake(); usleep(1000)) {
    background_wish();
    hak_free(hak_malloc(1 << 20));
    assert_true(os_milliseconds() < until_ms);
  }
}

UNIT_TEST(a_thread_that_was_killed_is_replaced) {
  until_awake();
  atomic_store(&is_killed, true);
  while (atomic_load(&is_killed))
    usleep(1000);
  background_stop();
  until_awake();
}

UNIT_MAIN()
