/* What ends a program that uses a heap after its destruction, and with which sentence (docs/misuse.md). Each crime is
 * committed in a child. With `innocent` the children commit none: the test must fail then. */
#include <stdbool.h>

#include <hakmem/hakmem.h>

#include "../child.h"
#include "../threads.h"

static hak_heap *heap;
static bool is_innocent;

static void end_heap(void) {
  if (!is_innocent)
    CHECK(hak_heap_destroy(heap) == 0);
}

static void destroy_twice(void) {
  end_heap();
  hak_heap_destroy(heap);
}

static void allocate(void) {
  CHECK(hak_heap_malloc(heap, 100) != NULL);
  end_heap();
  hak_heap_malloc(heap, 100);
}

/* The next heap lies in the same place. */
static void allocate_beside_the_next(void) {
  CHECK(hak_heap_malloc(heap, 100) != NULL);
  end_heap();
  hak_heap *next = hak_heap_new(0);
  CHECK(next != heap && hak_heap_malloc(next, 100) != NULL);
  hak_heap_calloc(heap, 1, 100);
}

static void *destroy_in_thread(void *unused) {
  end_heap();
  return unused;
}

/* The thread has blocks of the heap in its bins. */
static void allocate_after_another_destroyed_it(void) {
  CHECK(hak_heap_malloc(heap, 100) != NULL);
  test_thread_run(destroy_in_thread, NULL);
  hak_heap_malloc(heap, 100);
}

static void make_it_the_default(void) {
  end_heap();
  hak_heap_set_default(heap, NULL);
}

static void ask_for_figures(void) {
  struct hak_heap_stats stats;
  end_heap();
  hak_heap_stats_get(heap, &stats);
}

static void trim(void) {
  end_heap();
  hak_heap_trim(heap);
}

static void allocate_from_nothing(void) {
  if (!is_innocent)
    heap = NULL;
  hak_heap_malloc(heap, 100);
}

static char *small, *large;

static void free_small(void) {
  end_heap();
  hak_free(small);
}

static void realloc_small(void) {
  end_heap();
  CHECK(hak_realloc(small, 100000) == NULL || is_innocent);
}

static void free_large(void) {
  end_heap();
  hak_free(large);
}

static const struct crime {
  const char *name;
  void (*commit)(void);
  int expects; /* 0: the heap was destroyed; 1: no block is there */
} crimes[] = {
    {"destroy_twice", destroy_twice, 0},
    {"allocate", allocate, 0},
    {"allocate_beside_the_next", allocate_beside_the_next, 0},
    {"allocate_after_another_destroyed_it", allocate_after_another_destroyed_it, 0},
    {"make_it_the_default", make_it_the_default, 0},
    {"ask_for_figures", ask_for_figures, 0},
    {"trim", trim, 0},
    {"allocate_from_nothing", allocate_from_nothing, 0},
    {"free_small", free_small, 1},
    {"realloc_small", realloc_small, 1},
    {"free_large", free_large, 1},
};

static bool says_so(const struct crime *crime, const char *said) {
  char text[200];
  const char *sentences[] = {"double free of block 0x%lx",
                             "free of 0x%lx, which lies in hakmem memory that holds no block",
                             "realloc of 0x%lx, which hakmem did not allocate"};
  if (crime->commit == allocate_from_nothing)
    return strcmp("hakmem: use of heap 0x0, which is none: hak_heap_new returned NULL\n", said) == 0;
  if (crime->expects == 0) {
    snprintf(text, sizeof text, "hakmem: use of heap 0x%lx, which was destroyed\n", (unsigned long)heap);
    return strcmp(text, said) == 0;
  }
  for (int i = 0; i < 3; i++) { /* it depends on what the memory became */
    char sentence[160];
    snprintf(sentence, sizeof sentence, sentences[i], (unsigned long)(crime->commit == free_large ? large : small));
    snprintf(text, sizeof text, "hakmem: %s\n", sentence);
    if (strcmp(text, said) == 0)
      return true;
  }
  return false;
}

static void commit(void *crime) { ((const struct crime *)crime)->commit(); }

static void judge(const struct crime *crime) {
  char said[400];
  int status = test_child_says(commit, (void *)(uintptr_t)crime, said, sizeof said);
  CHECK_SAY(WIFSIGNALED(status) && WTERMSIG(status) == SIGABRT && says_so(crime, said), "%s: status 0x%x, stderr: %s",
            crime->name, status, said);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  is_innocent = argc > 1 && strcmp(argv[1], "innocent") == 0;
  CHECK(hak_option_set("foreign", "abort") == 0);
  heap = CHECK_GOT(hak_heap_new(0));
  small = CHECK_GOT(hak_heap_malloc(heap, 100));
  large = CHECK_GOT(hak_heap_malloc(heap, (size_t)3 << 20));
  for (size_t i = 0; i < sizeof crimes / sizeof *crimes; i++)
    judge(&crimes[i]);
}
