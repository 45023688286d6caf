/* Each crime ends the program with one fixed sentence and SIGABRT; correct programs end with nothing.
 *
 *   misuse CRIME           commits it in a child and judges the child
 *   misuse CRIME --commit  commits it here (the crime alone, to be looked at in a debugger)
 *
 * The sentence must be all the child writes on stderr. Small blocks are examined when freed pointers
 * leave the bin, so those crimes are followed by a trim. */
#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>

#include "../check.h"
#include "../heap_api.h"

/* The address the sentence must name; written by the child to the judge before the crime. */
static void (*tell)(const void *address);

static void double_free(void) {
  char *block = t_malloc(100);
  tell(block);
  t_free(block);
  t_free(test_opaque(block));
  t_trim(0);
}

static void *free_and_trim(void *block) {
  t_free(block);
  t_trim(0);
  return NULL;
}

static void thread_do(void *(*function)(void *), void *argument) {
  pthread_t thread;
  CHECK(pthread_create(&thread, NULL, function, argument) == 0);
  pthread_join(thread, NULL);
}

/* The neighbours keep the slab in use: a slab that empties is closed, and its memory may become
 * another block, whose free would be right. */
static void neighbours_keep(size_t size) {
  for (int i = 0; i < 4; i++)
    CHECK(t_malloc(size) != NULL);
}

static void double_free_other_thread(void) {
  neighbours_keep(100);
  char *block = t_malloc(100);
  tell(block);
  t_free(block);
  t_trim(0);
  thread_do(free_and_trim, test_opaque(block));
  t_trim(0);
}

static void double_free_by_strangers(void) {
  neighbours_keep(100);
  char *block = t_malloc(100);
  tell(block);
  thread_do(free_and_trim, block);
  thread_do(free_and_trim, test_opaque(block));
  t_trim(0);
}

static void double_free_mid(void) {
  char *block = t_malloc(100000);
  tell(block);
  t_free(block);
  t_free(test_opaque(block));
  t_trim(0);
}

static void double_free_large(void) {
  char *other = t_malloc(3000000), *block = t_malloc(3000000);
  tell(block);
  t_free(block);
  t_free(test_opaque(block));
  t_free(other);
}

static void double_free_large_trimmed(void) {
  char *block = t_malloc(3000000);
  tell(block);
  t_free(block);
  t_trim(0);
  t_free(test_opaque(block));
}

static void inside_pointer(void) {
  char *block = t_malloc(100);
  tell(block + 16);
  t_free(test_opaque(block + 16));
  t_trim(0);
}

static void inside_pointer_odd(void) {
  char *block = t_malloc(100);
  tell(block + 1);
  t_free(test_opaque(block + 1));
  t_trim(0);
}

static void inside_pointer_other_thread(void) {
  char *block = t_malloc(1000);
  tell(block + 48);
  thread_do(free_and_trim, test_opaque(block + 48));
  t_trim(0);
}

static void inside_large(void) {
  char *block = t_malloc(3000000);
  tell(block + 4096);
  t_free(test_opaque(block + 4096));
}

static void inside_large_far(void) {
  char *block = t_malloc(3000000);
  tell(block + 2500000);
  t_free(test_opaque(block + 2500000));
}

/* An address in the same 2 MiB as a block, in a part nothing was given from yet. One small block opens
 * a superslab; its last units are used last. */
static void empty_place(void) {
  char *block = t_malloc(100);
  char *place = (char *)(((uintptr_t)block | ((2u << 20) - 1)) + 1 - 65536);
  tell(place);
  t_free(test_opaque(place));
  t_trim(0);
}

static void realloc_inside(void) {
  char *block = t_malloc(100);
  tell(block + 32);
  if (t_realloc(test_opaque(block + 32), 5000))
    _exit(3);
}

static void realloc_inside_large(void) {
  char *block = t_malloc(3000000);
  tell(block + 1000000);
  if (t_realloc(test_opaque(block + 1000000), 5000))
    _exit(3);
}

static void realloc_of_foreign(void) {
  static char foreign[64] __attribute__((aligned(16)));
  tell(foreign);
  if (t_realloc(test_opaque(foreign), 100))
    _exit(3);
}

static void realloc_of_stack(void) {
  char foreign[64] __attribute__((aligned(16))) = "";
  tell(foreign);
  if (t_realloc(test_opaque(foreign), 100))
    _exit(3);
}

/* Everything the crimes do, done properly: no sentence, no signal. */
static void innocent(void) {
  static const size_t sizes[] = {1, 100, 1000, 100000, 3000000};
  for (int i = 0; i < 5; i++) {
    char *block = t_malloc(sizes[i]);
    block = t_realloc(block, sizes[i] * 2);
    thread_do(free_and_trim, block);
    t_free(t_malloc(sizes[i]));
    t_free(t_aligned_alloc(4096, 8192));
    t_trim(0);
  }
  t_free(NULL);
}

static const char not_start[] = "hakmem: free of 0x%lx, which is not the start of a block\n";
static const char double_free_of[] = "hakmem: double free of block 0x%lx\n";
static const char no_block[] = "hakmem: free of 0x%lx, which lies in hakmem memory that holds no block\n";
static const char not_ours[] = "hakmem: realloc of 0x%lx, which hakmem did not allocate\n";

/* second: another sentence that is as right, or NULL. */
static const struct crime {
  const char *name;
  void (*commit)(void);
  const char *sentence, *second;
} crimes[] = {
    {"double_free", double_free, double_free_of, NULL},
    {"double_free_other_thread", double_free_other_thread, double_free_of, NULL},
    {"double_free_by_strangers", double_free_by_strangers, double_free_of, NULL},
    {"double_free_mid", double_free_mid, double_free_of, NULL},
    /* A freed large range is no block any more: which of the two is said depends on whether it is cached. */
    {"double_free_large", double_free_large, double_free_of, no_block},
    {"double_free_large_trimmed", double_free_large_trimmed, double_free_of, no_block},
    {"inside_pointer", inside_pointer, not_start, NULL},
    {"inside_pointer_odd", inside_pointer_odd, not_start, NULL},
    {"inside_pointer_other_thread", inside_pointer_other_thread, not_start, NULL},
    {"inside_large", inside_large, not_start, NULL},
    {"inside_large_far", inside_large_far, not_start, NULL},
    {"empty_place", empty_place, no_block, NULL},
    {"realloc_inside", realloc_inside, not_start, NULL},
    {"realloc_inside_large", realloc_inside_large, not_start, NULL},
    {"realloc_of_foreign", realloc_of_foreign, not_ours, NULL},
    {"realloc_of_stack", realloc_of_stack, not_ours, NULL},
    {"innocent", innocent, NULL, NULL},
};

static int tell_pipe[2];

static void tell_judge(const void *address) {
  CHECK(write(tell_pipe[1], &address, sizeof address) == (ssize_t)sizeof address);
}

static void tell_nobody(const void *address) { (void)address; }

static void judge(const struct crime *crime) {
  int error_pipe[2], status;
  CHECK(pipe(tell_pipe) == 0 && pipe(error_pipe) == 0);
  pid_t child = fork();
  CHECK(child >= 0);
  if (child == 0) {
    CHECK(dup2(error_pipe[1], 2) == 2);
    close(error_pipe[0]);
    alarm(20);
    tell = tell_judge;
    crime->commit();
    _exit(0);
  }
  close(tell_pipe[1]);
  close(error_pipe[1]);
  const void *address = NULL;
  CHECK(read(tell_pipe[0], &address, sizeof address) >= 0);
  char said[4096], expected[256] = "", second[256] = "";
  size_t length = 0;
  ssize_t got;
  while ((got = read(error_pipe[0], said + length, sizeof said - 1 - length)) > 0)
    length += (size_t)got;
  said[length] = 0;
  CHECK(waitpid(child, &status, 0) == child);
  if (crime->sentence) {
    snprintf(expected, sizeof expected, crime->sentence, (unsigned long)(uintptr_t)address);
    if (crime->second)
      snprintf(second, sizeof second, crime->second, (unsigned long)(uintptr_t)address);
    CHECK_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT, "%s: status 0x%x, stderr: %s", crime->name, status,
              said);
  } else {
    CHECK_SAY(status == 0, "%s: status 0x%x, stderr: %s", crime->name, status, said);
  }
  if (TEST_EMULATED) { /* the emulator adds a line of its own */
    char *line = strstr(said, "qemu: ");
    if (line)
      *line = 0;
  }
  int right = strcmp(said, expected) == 0 || (crime->second && strcmp(said, second) == 0);
  CHECK_SAY(right, "%s said: %s, expected: %s", crime->name, said, expected);
}

int main(int argc, char **argv) {
#ifndef TEST_CORE
  if (!getenv("TEST_EXPECT_HAKMEM"))
    test_skip("the sentences are hakmem's");
#endif
  CHECK(argc > 1);
  test_begin(argc, argv);
  int found = 0;
  for (size_t i = 0; i < sizeof crimes / sizeof *crimes; i++) {
    if (strcmp(argv[1], "all") != 0 && strcmp(argv[1], crimes[i].name) != 0)
      continue;
    found = 1;
    if (argc > 2 && strcmp(argv[2], "--commit") == 0) {
      tell = tell_nobody;
      crimes[i].commit();
    } else {
      judge(&crimes[i]);
    }
  }
  CHECK_SAY(found, "no crime of that name");
  printf("misuse %s: ok\n", argv[1]);
  return 0;
}
