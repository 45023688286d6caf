/* record_cxx.c: C++'s operators. An allocator with operators of its own is called there; libstdc++'s call malloc,
 * which is then recorded with the caller of the operator as its site. Compiled with -fexceptions: bad_alloc passes
 * through. */
#include "record.h"

#include <dlfcn.h>
#include <stdlib.h>

/* The function behind this library; else, in a program that loads libstdc++ late, libstdc++'s. */
static void *find(const char *name) {
  void *found = dlsym(RTLD_NEXT, name);
  void *library = found ? NULL : dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return found || !library ? found : dlsym(library, name);
}

/* While an operator new runs, its caller is the site; an operator inside it (new[] calls new) leaves that. */
struct caller {
  const void *before;
};
static void caller_leave(const struct caller *caller) { record_self.site = caller->before; }
#define CALLER_IS(address)                                                                                             \
  __attribute__((cleanup(caller_leave))) struct caller caller_left = {record_self.site};                               \
  if (!caller_left.before)                                                                                             \
    record_self.site = (address);                                                                                      \
  record_self.given = NULL

static void *gave(void *block, size_t size, size_t alignment) {
  if (block && record_self.given != block && record_wanted())
    record_gave(alignment ? TRACE_ALIGNED : TRACE_MALLOC, block, size, alignment, NULL);
  return block;
}

/* A program without a C++ run time cannot catch anything. */
static void *instead(size_t size, size_t alignment, bool may_fail) {
  void *block = alignment ? record_memalign_next(alignment, size) : malloc(size ? size : 1);
  if (!block && !may_fail)
    abort();
  return block;
}

#define OPERATOR_NEW(label, parameters, arguments, alignment, may_fail)                                                \
  RECORD_EXPORT void *record_new_##label parameters __asm__(#label);                                                   \
  void *record_new_##label parameters {                                                                                \
    static void *(*behind)parameters;                                                                                  \
    if (RECORD_UNLIKELY(!behind))                                                                                      \
      *(void **)&behind = find(#label);                                                                                \
    CALLER_IS(__builtin_return_address(0));                                                                            \
    return gave(behind ? behind arguments : instead(size, alignment, may_fail), size, alignment);                      \
  }

#define OPERATOR_DELETE(label, parameters, arguments)                                                                  \
  RECORD_EXPORT void record_delete_##label parameters __asm__(#label);                                                 \
  void record_delete_##label parameters {                                                                              \
    static void(*behind) parameters;                                                                                   \
    if (!block)                                                                                                        \
      return;                                                                                                          \
    if (RECORD_UNLIKELY(!behind))                                                                                      \
      *(void **)&behind = find(#label);                                                                                \
    if (record_wanted())                                                                                               \
      record_took(TRACE_FREE, block);                                                                                  \
    if (behind) {                                                                                                      \
      record_self.depth++;                                                                                             \
      behind arguments;                                                                                                \
      record_self.depth--;                                                                                             \
    } else                                                                                                             \
      record_free_next(block);                                                                                         \
  }

#define TAG const void *tag /* const std::nothrow_t & */

OPERATOR_NEW(_Znwm, (size_t size), (size), 0, false)
OPERATOR_NEW(_Znam, (size_t size), (size), 0, false)
OPERATOR_NEW(_ZnwmRKSt9nothrow_t, (size_t size, TAG), (size, tag), 0, true)
OPERATOR_NEW(_ZnamRKSt9nothrow_t, (size_t size, TAG), (size, tag), 0, true)
OPERATOR_NEW(_ZnwmSt11align_val_t, (size_t size, size_t align), (size, align), align, false)
OPERATOR_NEW(_ZnamSt11align_val_t, (size_t size, size_t align), (size, align), align, false)
OPERATOR_NEW(_ZnwmSt11align_val_tRKSt9nothrow_t, (size_t size, size_t align, TAG), (size, align, tag), align, true)
OPERATOR_NEW(_ZnamSt11align_val_tRKSt9nothrow_t, (size_t size, size_t align, TAG), (size, align, tag), align, true)

OPERATOR_DELETE(_ZdlPv, (void *block), (block))
OPERATOR_DELETE(_ZdaPv, (void *block), (block))
OPERATOR_DELETE(_ZdlPvm, (void *block, size_t size), (block, size))
OPERATOR_DELETE(_ZdaPvm, (void *block, size_t size), (block, size))
OPERATOR_DELETE(_ZdlPvRKSt9nothrow_t, (void *block, TAG), (block, tag))
OPERATOR_DELETE(_ZdaPvRKSt9nothrow_t, (void *block, TAG), (block, tag))
OPERATOR_DELETE(_ZdlPvSt11align_val_t, (void *block, size_t align), (block, align))
OPERATOR_DELETE(_ZdaPvSt11align_val_t, (void *block, size_t align), (block, align))
OPERATOR_DELETE(_ZdlPvmSt11align_val_t, (void *block, size_t size, size_t align), (block, size, align))
OPERATOR_DELETE(_ZdaPvmSt11align_val_t, (void *block, size_t size, size_t align), (block, size, align))
OPERATOR_DELETE(_ZdlPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t align, TAG), (block, align, tag))
OPERATOR_DELETE(_ZdaPvSt11align_val_tRKSt9nothrow_t, (void *block, size_t align, TAG), (block, align, tag))
