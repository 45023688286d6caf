/* A program that learns: it frees and asks again for large objects, step by step as its arguments say, and ends with 0.
 *     a N           N rounds of 1 MiB, a millisecond apart
 *     b N           the same of 3 MiB, from another call site
 *     fork          the rest is done by a child; the parent waits, and ends without its exit handlers
 *     chdir PATH    works there from then on
 *     stderr PATH   that file gets the descriptor of stderr
 *     wait          says "ready" on stdout, goes on when stdin ends
 *     address       says where its code lies
 *     exit N        ends with N
 */
#include "../child.h"

#define PAUSE_US 1000

static __attribute__((noinline)) void *take_a(void) {
  void *volatile block = malloc(MIB);
  return block;
}

static __attribute__((noinline)) void *take_b(void) {
  void *volatile block = malloc(3 * MIB);
  return block;
}

static void rounds(void *(*take)(void), int count) {
  for (int i = 0; i < count; i++) {
    char *block = CHECK_GOT(take());
    block[0] = block[MIB - 1] = 1;
    free(block);
    usleep(PAUSE_US);
  }
}

static void go_on_as_child(void) {
  int status;
  fflush(NULL);
  pid_t child = test_fork();
  if (child == 0)
    return;
  CHECK(waitpid(child, &status, 0) == child);
  _exit(WIFEXITED(status) ? WEXITSTATUS(status) : 99);
}

static void become_stderr(const char *path) {
  int fd = open(path, O_WRONLY | O_CREAT, 0600);
  CHECK(fd >= 0 && dup2(fd, 2) == 2 && close(fd) == 0);
}

static void wait_for_end(void) {
  puts("ready");
  fflush(stdout);
  while (getchar() != EOF)
    ;
}

int main(int argc, char **argv) {
  for (int i = 1; i < argc; i++) {
    const char *step = argv[i], *value = argv[i + 1];
    if (strcmp(step, "fork") == 0) {
      go_on_as_child();
      continue;
    }
    if (strcmp(step, "wait") == 0) {
      wait_for_end();
      continue;
    }
    if (strcmp(step, "address") == 0) {
      printf("%p\n", (void *)(uintptr_t)main);
      continue;
    }
    CHECK_SAY(value != NULL, "%s: no value", step);
    i++;
    if (strcmp(step, "a") == 0)
      rounds(take_a, atoi(value));
    else if (strcmp(step, "b") == 0)
      rounds(take_b, atoi(value));
    else if (strcmp(step, "chdir") == 0)
      CHECK(chdir(value) == 0);
    else if (strcmp(step, "stderr") == 0)
      become_stderr(value);
    else if (strcmp(step, "exit") == 0)
      exit(atoi(value));
    else
      CHECK_SAY(step == NULL, "%s: no such step", step);
  }
}
