/* A process that shares our memory (vfork) and ends while it stops our thread leaves nothing behind: the thread starts
 * again later. The end is played by a jump out of the question for the process's id. */
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

UNIT_MAIN()
