/* module: an address has the same name in each process that runs the same files, wherever they are loaded. */
#include "unit.h"

#include "inspect/module.h"

#include <spawn.h>

extern char **environ;

static int code_of_this_program(int x) { return x + 1; }

static uintptr_t address_in(bool library) {
  return library ? (uintptr_t)test_opaque((void *)(uintptr_t)print_error)
                 : (uintptr_t)test_opaque((void *)(uintptr_t)code_of_this_program);
}

static struct os_module module_in(bool library) {
  struct os_module module;
  assert_true(os_module_find(address_in(library), &module));
  return module;
}

UNIT_TEST(names_and_offsets) {
  struct os_module program = module_in(false);
  assert_string_equal(program.name, "unit-module");
  assert_true(program.build != 0);
  struct os_module next;
  assert_true(os_module_find(address_in(false) + 1, &next));
  assert_int_equal(next.build, program.build);
  assert_int_equal(next.offset, program.offset + 1);
#if defined(__GLIBC__) && !TEST_EMULATED /* those programs are static */
  struct os_module library = module_in(true);
  assert_non_null(strstr(library.name, "libcmocka.so"));
  assert_true(library.build != program.build);
#endif
}

UNIT_TEST(what_is_in_no_module) {
  struct os_module module;
  int on_stack = 0;
  char *on_heap = malloc(1);
  assert_false(os_module_find((uintptr_t)&on_stack, &module));
  assert_false(os_module_find((uintptr_t)on_heap, &module));
  assert_false(os_module_find(0, &module));
  assert_false(os_module_find(UINTPTR_MAX, &module));
  free(on_heap);
}

struct seen {
  uintptr_t address[2], offset[2];
  uint32_t build[2];
};

static struct seen see(void) {
  struct seen seen;
  memset(&seen, 0, sizeof seen);
  for (unsigned library = 0; library < 2; library++) {
    struct os_module module;
    seen.address[library] = address_in(library);
    if (os_module_find(seen.address[library], &module)) {
      seen.offset[library] = module.offset;
      seen.build[library] = module.build;
    }
  }
  return seen;
}

#if !TEST_EMULATED /* what an emulator starts is the emulator */
/* The control: the addresses did differ. */
UNIT_TEST(the_same_in_other_processes) {
  struct seen here = see();
  bool moved = false;
  for (unsigned i = 0; i < 8; i++) {
    int ends[2];
    struct seen there;
    assert_int_equal(pipe(ends), 0);
    char fd[16];
    snprintf(fd, sizeof fd, "%d", ends[1]);
    char *words[] = {"unit-module", fd, NULL};
    pid_t child;
    assert_int_equal(posix_spawn(&child, "/proc/self/exe", NULL, NULL, words, environ), 0);
    close(ends[1]);
    assert_int_equal(read(ends[0], &there, sizeof there), sizeof there);
    assert_int_equal(waitpid(child, NULL, 0), child);
    close(ends[0]);
    assert_memory_equal(there.offset, here.offset, sizeof here.offset);
    assert_memory_equal(there.build, here.build, sizeof here.build);
    moved |= there.address[0] != here.address[0];
  }
  if (!moved)
    print_message("addresses are not random here\n");
}
#endif

int main(int count, char **words) {
  if (count == 2) {
    struct seen seen = see();
    return write(atoi(words[1]), &seen, sizeof seen) != sizeof seen;
  }
  return unit_run(NULL, NULL);
}
