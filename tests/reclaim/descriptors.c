/* The background thread watches a file of the kernel. A program that closes descriptors it does not know, and gets the
 * same number for a file of its own, keeps that open: while the thread runs, in the child of a fork, and after it.
 *     descriptors [closed]    closed: the program loses it after all, which must be noticed (the control)
 */
#include <sys/socket.h>

#include "../child.h"
#include "again.h"

#define BLOCKS 40
#define DESCRIPTORS 1024
#define OTHER_DESCRIPTOR 100
#define WAIT_SECONDS 5.0

/* The number of the library's descriptor, -1: none. */
static int pressure_descriptor(void) {
  for (int number = 3; number < DESCRIPTORS; number++) {
    char path[64], name[256];
    snprintf(path, sizeof path, "/proc/self/fd/%d", number);
    ssize_t length = readlink(path, name, sizeof name - 1);
    name[length > 0 ? length : 0] = 0;
    if (strstr(name, "pressure"))
      return number;
  }
  return -1;
}

static int wait_for_descriptor(void) {
  int number = -1;
  for (double end = test_seconds() + WAIT_SECONDS; number < 0 && test_seconds() < end; usleep(20000))
    number = pressure_descriptor();
  return number;
}

static void check_open(int number) { CHECK_SAY(fcntl(number, F_GETFD) >= 0, "descriptor %d was closed", number); }

/* A few periods of the thread, which is awake. */
static void let_it_look(void) {
  for (int i = 0; i < 20; i++) {
    t_free(test_opaque(t_malloc(MIB)));
    usleep(100000);
  }
}

static void check_after_fork(int number) {
  TEST_IN_CHILD { check_open(number); }
  check_open(number);
}

int main(int argc, char **argv) {
  test_begin_with(argc, argv, "HAKMEM_BACKGROUND", "on", "HAKMEM_CGROUP", "on");
  for (int i = 0; i < BLOCKS; i++) {
    char *block = CHECK_GOT(t_malloc(MIB));
    memset(block, 1, MIB);
  }
  let_it_look(); /* or starts it */
  int number = wait_for_descriptor();
  test_skip_if(number < 0, "the library watches no descriptor here");
  for (int open_one = 3; open_one < DESCRIPTORS; open_one++)
    close(open_one);
  /* A file that a watcher finds ready and hung up. */
  int pair[2];
  CHECK(socketpair(AF_UNIX, SOCK_STREAM, 0, pair) == 0);
  int other = fcntl(pair[1], F_DUPFD, OTHER_DESCRIPTOR);
  if (pair[0] != number)
    CHECK(dup2(pair[0], number) == number);
  if (pair[1] != number)
    close(pair[1]);
  close(other);
  if (argc > 1 && strcmp(argv[1], "closed") == 0)
    close(number);
  check_open(number);
  let_it_look();
  check_open(number);
  check_after_fork(number);
  /* A regular file. */
  int file = open("/proc/self/exe", O_RDONLY | O_CLOEXEC);
  CHECK(file >= 0 && dup2(file, number) == number);
  check_after_fork(number);
  let_it_look();
  check_open(number);
}
