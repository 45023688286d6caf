// Every form of new and delete: aligned as asked, usable, interchangeable with its delete.
#include <cstddef>
#include <memory>
#include <new>
#include <string>
#include <vector>

#include "../check.h"

struct alignas(128) wide {
  char bytes[300];
};

struct counted {
  static int alive;
  int value = 42;
  counted() { alive++; }
  ~counted() { alive--; }
};
int counted::alive;

template <typename T> static T *opaque(T *pointer) { return static_cast<T *>(test_opaque(pointer)); }

static void raw_forms(std::size_t size, std::align_val_t alignment) {
  const auto mask = static_cast<std::size_t>(alignment) - 1;
  const auto aligned = [mask](void *block) { return (reinterpret_cast<std::uintptr_t>(block) & mask) == 0; };
  ::operator delete(opaque(::operator new(size)));
  ::operator delete(opaque(::operator new(size)), size);
  ::operator delete[](opaque(::operator new[](size)));
  ::operator delete[](opaque(::operator new[](size)), size);
  ::operator delete(opaque(::operator new(size, std::nothrow)), std::nothrow);
  ::operator delete[](opaque(::operator new[](size, std::nothrow)), std::nothrow);
  void *block = opaque(::operator new(size, alignment));
  CHECK(aligned(block));
  ::operator delete(block, alignment);
  block = opaque(::operator new(size, alignment));
  ::operator delete(block, size, alignment);
  block = opaque(::operator new[](size, alignment));
  CHECK(aligned(block));
  ::operator delete[](block, alignment);
  block = opaque(::operator new[](size, alignment));
  ::operator delete[](block, size, alignment);
  block = opaque(::operator new(size, alignment, std::nothrow));
  CHECK(block && aligned(block));
  ::operator delete(block, alignment, std::nothrow);
  block = opaque(::operator new[](size, alignment, std::nothrow));
  CHECK(block && aligned(block));
  ::operator delete[](block, alignment, std::nothrow);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  for (std::size_t size = 0; size < 2000000; size = size * 3 + 1) {
    for (std::size_t alignment = 16; alignment <= 65536; alignment *= 4)
      raw_forms(size, std::align_val_t{alignment});
  }
  ::operator delete(nullptr);
  ::operator delete[](nullptr);
  ::operator delete(nullptr, std::nothrow);
  auto wides = std::make_unique<wide[]>(10);
  CHECK(reinterpret_cast<std::uintptr_t>(wides.get()) % 128 == 0);
  auto *counts = opaque(new counted[1000]);
  CHECK(counted::alive == 1000 && counts[999].value == 42);
  delete[] counts;
  CHECK(counted::alive == 0);
  void *zero = opaque(::operator new(0)), *other = opaque(::operator new(0));
  CHECK(zero && other && zero != other);
  ::operator delete(zero);
  ::operator delete(other);
  std::vector<std::string> words;
  for (int i = 0; i < 10000; i++)
    words.push_back(std::string(static_cast<std::size_t>(i % 300), 'a'));
  std::vector<std::string> copies(words);
  CHECK(copies == words);
}
