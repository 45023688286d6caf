/* The shared library may be preloaded or linked, and then malloc is ours in the whole process. Or it was opened by
 * dlopen for private use, beside another malloc. The names of the program's own scope tell. */
#include "api/alloc.h"
#include "os/caller.h"

#include <dlfcn.h>
#include <stdlib.h>

/* dlopen's name of the program. For glibc NULL is the empty name too, but a constant of its own, whose pages few
 * programs touch at their start. */
#ifdef __GLIBC__
#define PROGRAM ""
#else
#define PROGRAM NULL
#endif

/* dlmopen and LD_AUDIT make further namespaces, each with a libc of its own. The program is in none of them, and in an
 * auditor's glibc's dlopen(NULL) crashes. */
__attribute__((constructor)) static void find_scope(void) {
  void *program = os_is_in_namespace_of_program() ? dlopen(PROGRAM, RTLD_LAZY | RTLD_NOLOAD) : NULL;
  if (program == NULL)
    return;
  if (dlsym(program, "malloc") == (void *)malloc && dlsym(program, "free") == (void *)free)
    foreign_malloc_is_ours();
  dlclose(program);
}
