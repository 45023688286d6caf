// C++'s operators. The shared library must load into C programs without libstdc++, so there everything
// of the C++ run time is referred to weakly: it is there whenever a program can throw or catch. In the
// static library the references are strong, as a weak one takes nothing out of an archive.
#include "api/alloc.h"

#include <dlfcn.h>
#include <new>

#ifdef HAK_CXX_RUNTIME_LINKED
#define RUNTIME
#else
#define RUNTIME __attribute__((weak))
__asm__(".weak __gxx_personality_v0\n.weak __cxa_begin_catch\n.weak __cxa_end_catch\n.weak _ZSt9terminatev");
#endif

extern "C" {
std::new_handler hak_get_new_handler() __asm__("_ZSt15get_new_handlerv") RUNTIME;
void hak_throw_bad_alloc() __asm__("_ZSt17__throw_bad_allocv") RUNTIME;
}

#ifdef HAK_CXX_RUNTIME_LINKED
#define EXPORT __attribute__((visibility("default"), weak)) // a program may bring some of the operators itself
#else
#define EXPORT __attribute__((visibility("default")))
#endif

namespace {

// A function of libstdc++: linked in, or loaded later by dlopen with its names kept local.
template <typename F> F *runtime_function(F *linked, const char *name) {
#ifdef HAK_CXX_RUNTIME_LINKED
  (void)name;
  return linked;
#else
  if (linked)
    return linked;
  void *library = dlopen("libstdc++.so.6", RTLD_LAZY | RTLD_NOLOAD);
  return library ? reinterpret_cast<F *>(dlsym(library, name)) : nullptr;
#endif
}

// [new.delete.single]: while memory is out, call the new_handler; without one, throw bad_alloc.
__attribute__((noinline, cold)) void *allocate_or_throw(std::size_t size, std::size_t alignment) {
  auto *get_handler = runtime_function(&hak_get_new_handler, "_ZSt15get_new_handlerv");
  auto *throw_bad_alloc = runtime_function(&hak_throw_bad_alloc, "_ZSt17__throw_bad_allocv");
  for (;;) {
    std::new_handler handler = get_handler ? get_handler() : nullptr;
    if (handler == nullptr) {
      if (throw_bad_alloc)
        throw_bad_alloc();
      __builtin_trap(); // operator new without a C++ run time
    }
    handler();
    if (void *block = aligned_block(alignment, size, 0))
      return block;
  }
}

__attribute__((noinline, cold)) void *allocate_or_null(std::size_t size, std::size_t alignment) noexcept {
  try {
    return allocate_or_throw(size, alignment);
  } catch (...) {
    return nullptr;
  }
}

// Inlined into the operators, so CALL_SITE is what called those.
__attribute__((always_inline)) inline void *take(std::size_t size) {
  void *block = malloc_from(size, 0);
  return HAK_LIKELY(block != nullptr) ? block : allocate_or_throw(size, 1);
}
__attribute__((always_inline)) inline void *take_nothrow(std::size_t size) noexcept {
  void *block = malloc_from(size, 0);
  return HAK_LIKELY(block != nullptr) ? block : allocate_or_null(size, 1);
}
__attribute__((always_inline)) inline void *take(std::size_t size, std::align_val_t alignment) {
  void *block = aligned_block(static_cast<std::size_t>(alignment), size, CALL_SITE);
  return HAK_LIKELY(block != nullptr) ? block : allocate_or_throw(size, static_cast<std::size_t>(alignment));
}
__attribute__((always_inline)) inline void *take_nothrow(std::size_t size, std::align_val_t alignment) noexcept {
  void *block = aligned_block(static_cast<std::size_t>(alignment), size, CALL_SITE);
  return HAK_LIKELY(block != nullptr) ? block : allocate_or_null(size, static_cast<std::size_t>(alignment));
}

// Only the slow path looks at the size.
__attribute__((always_inline)) inline void give_sized(void *block, std::size_t size) {
  if (HAK_UNLIKELY(!hak_free_ready(block)))
    free_sized_slow(block, size);
}

} // namespace

using std::align_val_t;
using std::nothrow_t;
using std::size_t;

EXPORT void *operator new(size_t n) { return take(n); }
EXPORT void *operator new[](size_t n) { return take(n); }
EXPORT void *operator new(size_t n, const nothrow_t &) noexcept { return take_nothrow(n); }
EXPORT void *operator new[](size_t n, const nothrow_t &) noexcept { return take_nothrow(n); }
EXPORT void *operator new(size_t n, align_val_t a) { return take(n, a); }
EXPORT void *operator new[](size_t n, align_val_t a) { return take(n, a); }
EXPORT void *operator new(size_t n, align_val_t a, const nothrow_t &) noexcept { return take_nothrow(n, a); }
EXPORT void *operator new[](size_t n, align_val_t a, const nothrow_t &) noexcept { return take_nothrow(n, a); }

EXPORT void operator delete(void *p) noexcept { hak_free_inlined(p); }
EXPORT void operator delete[](void *p) noexcept { hak_free_inlined(p); }
EXPORT void operator delete(void *p, const nothrow_t &) noexcept { hak_free(p); }
EXPORT void operator delete[](void *p, const nothrow_t &) noexcept { hak_free(p); }
EXPORT void operator delete(void *p, size_t n) noexcept { give_sized(p, n); }
EXPORT void operator delete[](void *p, size_t n) noexcept { give_sized(p, n); }
EXPORT void operator delete(void *p, align_val_t) noexcept { hak_free(p); }
EXPORT void operator delete[](void *p, align_val_t) noexcept { hak_free(p); }
EXPORT void operator delete(void *p, size_t, align_val_t) noexcept { hak_free(p); }
EXPORT void operator delete[](void *p, size_t, align_val_t) noexcept { hak_free(p); }
EXPORT void operator delete(void *p, align_val_t, const nothrow_t &) noexcept { hak_free(p); }
EXPORT void operator delete[](void *p, align_val_t, const nothrow_t &) noexcept { hak_free(p); }
