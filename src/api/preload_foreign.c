/* The shared library may be preloaded or linked, and then malloc is ours in the whole process. Or it was opened by dlopen
 * for private use, beside another malloc. The names of the program's own scope tell. */
#include "api/foreign.h"

#include <dlfcn.h>
#include <stdlib.h>

/* Tells whether this is the copy of the program's own namespace. dlmopen makes others, which have a libc of their own. */
static bool is_in_namespace_of_program(void *program) {
#ifdef RTLD_DI_LMID
  Lmid_t id;
  return dlinfo(program, RTLD_DI_LMID, &id) == 0 && id == LM_ID_BASE;
#else
  return program != NULL;
#endif
}

__attribute__((constructor)) static void find_scope(void) {
  void *program = dlopen(NULL, RTLD_LAZY | RTLD_NOLOAD);
  if (program == NULL)
    return;
  if (is_in_namespace_of_program(program) && dlsym(program, "malloc") == (void *)malloc &&
      dlsym(program, "free") == (void *)free)
    foreign_malloc_is_ours();
  dlclose(program);
}
