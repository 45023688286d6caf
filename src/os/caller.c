#include "os/caller.h"

#include <dlfcn.h>
#include <link.h>
#include <stdlib.h>
#include <string.h>
#include <sys/auxv.h>

#define LIBRARIES_MAX 8u /* libc, ld.so; on older systems libpthread and libdl too */

static struct {
  struct {
    uintptr_t start, end;
  } list[LIBRARIES_MAX];
  unsigned count;
} libraries;

/* Defined beside the C library's names (api/override_libc.c). */
extern const char os_malloc_is_ours[] __attribute__((weak, visibility("hidden")));

#pragma weak dlsym /* it must not bring the loader into a static program */

static bool is_c_library(const char *path) {
  static const char *const names[] = {"libc.", "libc-", "ld-", "ld.", "ld64.", "libpthread", "libdl"};
  const char *slash = strrchr(path, '/');
  const char *name = slash ? slash + 1 : path;
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strncmp(name, names[i], strlen(names[i])) == 0)
      return true;
  return false;
}

/* Sets start and end to the addresses of a loaded object. */
static void object_span(const struct dl_phdr_info *info, uintptr_t *start, uintptr_t *end) {
  uintptr_t low = UINTPTR_MAX, high = 0;
  for (size_t i = info->dlpi_phnum; i-- > 0;)
    if (info->dlpi_phdr[i].p_type == PT_LOAD) {
      low = min_size(low, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr);
      high = max_size(high, info->dlpi_addr + info->dlpi_phdr[i].p_vaddr + info->dlpi_phdr[i].p_memsz);
    }
  *start = low;
  *end = high;
}

static int library_note(struct dl_phdr_info *info, size_t size, void *unused) {
  (void)size, (void)unused;
  uintptr_t low, high;
  if (!is_c_library(info->dlpi_name ? info->dlpi_name : "") && info->dlpi_addr != getauxval(AT_BASE))
    return 0;
  object_span(info, &low, &high);
  if (low < high && libraries.count < LIBRARIES_MAX) {
    libraries.list[libraries.count].start = low;
    libraries.list[libraries.count++].end = high;
  }
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
    if (address >= libraries.list[i].start && address < libraries.list[i].end)
      return true;
  return false;
}

struct first_object {
  uintptr_t start, end;
  bool is_program;
};

static int first_note(struct dl_phdr_info *info, size_t size, void *found) {
  (void)size;
  struct first_object *first = found;
  object_span(info, &first->start, &first->end);
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

/* Tells whether libraries find the executable's malloc. They do not if the link kept its name local, by
 * -Wl,--exclude-libs or a version script. Then libc's strdup and getline give the program blocks of libc's malloc. */
static bool libraries_find_malloc(void) {
  if (dlsym == NULL || getauxval(AT_BASE) == 0) /* a static program has no libraries */
    return true;
  return dlsym(RTLD_DEFAULT, "malloc") == (void *)malloc;
}

bool os_malloc_is_in_program(void) {
  if (os_malloc_is_ours == NULL)
    return false;
  struct first_object first = first_object();
  uintptr_t here = (uintptr_t)first_note;
  return first.is_program && here >= first.start && here < first.end && libraries_find_malloc();
}
