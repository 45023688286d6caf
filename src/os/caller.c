#include "os/caller.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define LIBRARIES_MAX 6u /* libc, ld.so; on older systems libpthread and libdl too */

struct span {
  uintptr_t start, end;
};

static struct {
  struct span list[LIBRARIES_MAX];
  unsigned count;
} libraries;

/* Defined beside the C library's names (api/override_libc.c), and hidden. It is not declared so: for a hidden name that
 * nothing defines, gold gives a program an address that is not NULL. */
extern const char os_malloc_is_ours[] __attribute__((weak, visibility("default")));

/* Defined in the shared library only (api/preload.c), which no dlclose unloads. */
extern const char os_is_shared_library[] __attribute__((weak, visibility("default")));

/* They must not bring the loader into a static program. */
#pragma weak dlsym
#pragma weak dladdr
#pragma weak dlopen

static bool is_c_library(const char *path) {
  static const char *const names[] = {"libc.", "libc-", "ld-", "ld.", "ld64.", "libpthread", "libdl"};
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(name, names[i], strlen(names[i])) == 0)
      return true;
  return false;
}

static bool span_has(struct span span, uintptr_t address) { return address >= span.start && address < span.end; }

static struct span object_span(const struct dl_phdr_info *info) {
  struct span span = {.start = UINTPTR_MAX, .end = 0};
  for (size_t i = 0; i < info->dlpi_phnum; i++)
    if (info->dlpi_phdr[i].p_type == PT_LOAD) {
      uintptr_t start = info->dlpi_addr + info->dlpi_phdr[i].p_vaddr;
      span.start = min_size(span.start, start);
      span.end = max_size(span.end, start + info->dlpi_phdr[i].p_memsz);
    }
  return span;
}

static int library_note(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  if (!is_c_library(info->dlpi_name ? info->dlpi_name : "") && info->dlpi_addr != getauxval(AT_BASE))
    return 0;
  struct span span = object_span(info);
  if (span.start < span.end && libraries.count < LIBRARIES_MAX)
    libraries.list[libraries.count++] = span;
  return 0;
}

bool os_callers_can_be_told(void) {
  if (os_malloc_is_ours == NULL)
    return true;
  if (getauxval(AT_BASE) == 0)
    return false;
  libraries.count = 0;
  dl_iterate_phdr(library_note, NULL);
  return libraries.count > 0;
}

bool os_is_c_library(uintptr_t address) {
  for (unsigned i = 0; i < libraries.count; i++)
    if (span_has(libraries.list[i], address))
      return true;
  return false;
}

struct first_object {
  struct span span;
  bool is_program;
};

static int first_note(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  struct first_object *first = found;
  first->span = object_span(info);
  first->is_program = (uintptr_t)info->dlpi_phdr == getauxval(AT_PHDR);
  return 1;
}

/* Finds the first object of this code's namespace. It is the program, but not in a namespace of dlmopen or LD_AUDIT. */
static struct first_object first_object(void) {
  struct first_object first = {0};
  dl_iterate_phdr(first_note, &first);
  return first;
}

bool os_is_in_namespace_of_program(void) { return first_object().is_program; }

void *os_find_for_libraries(const char *name) {
  return dlsym == NULL || getauxval(AT_BASE) == 0 ? NULL : dlsym(RTLD_DEFAULT, name);
}

/* Tells whether libraries find the executable's malloc. They do not if the link kept its name local, by
 * -Wl,--exclude-libs or a version script. Then libc's strdup and getline give the program blocks of libc's malloc. */
static bool libraries_find_malloc(void) {
  void *found = os_find_for_libraries("malloc");
  return found == NULL || found == (void *)malloc;
}

static bool code_is_in_program(void) {
  struct first_object first = first_object();
  return first.is_program && span_has(first.span, (uintptr_t)first_note);
}

bool os_malloc_is_in_program(void) {
  return os_malloc_is_ours != NULL && code_is_in_program() && libraries_find_malloc();
}

COLD void os_stay_loaded(void) {
  Dl_info own;
  if (os_is_shared_library != NULL || dlopen == NULL || dladdr == NULL || code_is_in_program())
    return;
  if (dladdr((void *)(uintptr_t)first_note, &own) != 0 && own.dli_fname != NULL)
    dlopen(own.dli_fname, RTLD_LAZY | RTLD_NOLOAD | RTLD_NODELETE);
}
