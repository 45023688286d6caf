// hakmem.hpp: heaps (hakmem/hakmem.h) for C++17.
//
//   hak::heap             owns a heap, and ends it with all that is in it
//   hak::allocator<T>     an Allocator for containers
//   hak::memory_resource  a std::pmr::memory_resource
//
// The heap must outlive what refers to it. Ending it runs no destructors: objects in it that own something else must be
// destroyed before. The functions may be called from any thread, like those of hakmem.h. Where exceptions are switched
// off (-fno-exceptions), what would throw calls std::abort.
#ifndef HAKMEM_HPP
#define HAKMEM_HPP

#if __cplusplus < 201703L
#error "hakmem.hpp needs C++17"
#endif

#include "hakmem.h"

#include <cstddef>
#include <cstdlib>
#include <limits>
#include <memory_resource>
#include <new>
#include <utility>

namespace hak {

namespace detail {
template <class Exception> [[noreturn]] inline void fail() {
#ifdef __cpp_exceptions
  throw Exception();
#else
  std::abort();
#endif
}
} // namespace detail

class heap {
public:
  // limit_bytes bounds what the heap holds; 0: no limit. Throws std::bad_alloc if no heap can be made (hak_heap_new).
  explicit heap(std::size_t limit_bytes = 0) : handle_(hak_heap_new(limit_bytes)) {
    if (handle_ == nullptr)
      detail::fail<std::bad_alloc>();
  }
  heap(heap &&other) noexcept : handle_(std::exchange(other.handle_, nullptr)) {}
  heap &operator=(heap &&other) noexcept {
    std::swap(handle_, other.handle_);
    return *this;
  }
  heap(const heap &) = delete;
  heap &operator=(const heap &) = delete;
  // If hak_heap_destroy refuses, because another thread has the heap as its default, the heap stays for ever.
  ~heap() { hak_heap_destroy(handle_); }

  hak_heap *handle() const noexcept { return handle_; }

  // nullptr when memory is out, or when the limit leaves none.
  void *malloc(std::size_t size) noexcept { return hak_heap_malloc(handle_, size); }
  void *calloc(std::size_t count, std::size_t size) noexcept { return hak_heap_calloc(handle_, count, size); }
  void *realloc(void *block, std::size_t size) noexcept { return hak_heap_realloc(handle_, block, size); }
  void *aligned_alloc(std::size_t alignment, std::size_t size) noexcept {
    return hak_heap_aligned_alloc(handle_, alignment, size);
  }
  void free(void *block) noexcept { hak_heap_free(handle_, block); }

  // Throws std::bad_alloc instead.
  void *allocate(std::size_t size, std::size_t alignment = alignof(std::max_align_t)) {
    void *block = alignment <= alignof(std::max_align_t) ? malloc(size) : aligned_alloc(alignment, size);
    if (block == nullptr)
      detail::fail<std::bad_alloc>();
    return block;
  }

  // True if pages went back to the system.
  bool trim() noexcept { return hak_heap_trim(handle_) != 0; }
  // Zeros if they cannot be read (hak_heap_stats_get).
  hak_heap_stats stats() const noexcept {
    hak_heap_stats out;
    hak_heap_stats_get(handle_, &out);
    return out;
  }

private:
  hak_heap *handle_;
};

// While it lives, the calling thread's malloc and new take from the heap. End it on the same thread, the last one
// first.
class default_heap {
public:
  explicit default_heap(heap &to) {
    if (hak_heap_set_default(to.handle(), &before_) != 0)
      detail::fail<std::bad_alloc>();
  }
  default_heap(const default_heap &) = delete;
  default_heap &operator=(const default_heap &) = delete;
  ~default_heap() { hak_heap_set_default(before_, nullptr); }

private:
  hak_heap *before_ = nullptr;
};

template <class T> class allocator {
public:
  using value_type = T;

  allocator(heap &from) noexcept : handle_(from.handle()) {}
  explicit allocator(hak_heap *handle) noexcept : handle_(handle) {}
  template <class U> allocator(const allocator<U> &other) noexcept : handle_(other.handle()) {}

  T *allocate(std::size_t count) {
    if (count > std::numeric_limits<std::ptrdiff_t>::max() / sizeof(T))
      detail::fail<std::bad_array_new_length>();
    void *block = alignof(T) <= alignof(std::max_align_t)
                      ? hak_heap_malloc(handle_, count * sizeof(T))
                      : hak_heap_aligned_alloc(handle_, alignof(T), count * sizeof(T));
    if (block == nullptr)
      detail::fail<std::bad_alloc>();
    return static_cast<T *>(block);
  }
  void deallocate(T *block, std::size_t) noexcept { hak_heap_free(handle_, block); }

  hak_heap *handle() const noexcept { return handle_; }
  template <class U> bool operator==(const allocator<U> &other) const noexcept { return handle_ == other.handle(); }
  template <class U> bool operator!=(const allocator<U> &other) const noexcept { return handle_ != other.handle(); }

private:
  hak_heap *handle_;
};

class memory_resource final : public std::pmr::memory_resource {
public:
  explicit memory_resource(heap &from) noexcept : heap_(&from) {}

private:
  void *do_allocate(std::size_t size, std::size_t alignment) override { return heap_->allocate(size, alignment); }
  void do_deallocate(void *block, std::size_t, std::size_t) override { heap_->free(block); }
  bool do_is_equal(const std::pmr::memory_resource &other) const noexcept override {
#ifdef __cpp_rtti
    const auto *same = dynamic_cast<const memory_resource *>(&other);
    return same != nullptr && same->heap_ == heap_;
#else
    return this == &other; // nothing tells what the other one is
#endif
  }

  heap *heap_;
};

} // namespace hak

#endif
