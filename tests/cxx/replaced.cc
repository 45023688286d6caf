// A program that brings some of the operators itself: it can be linked statically, and its own are called.
#include <cstdlib>
#include <new>

#include "../check.h"

static int news, deletes;

void *operator new(std::size_t size) {
  news++;
  if (void *block = std::malloc(size))
    return block;
  throw std::bad_alloc();
}
void operator delete(void *block) noexcept {
  deletes++;
  std::free(block);
}
void operator delete(void *block, std::size_t) noexcept {
  deletes++;
  std::free(block);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  int *volatile one = new int(1); // volatile, or the compiler leaves the pair out
  delete one;
  CHECK(news == 1 && deletes == 1);
  // Forms that the program does not have.
  int *volatile many = new (std::nothrow) int[100];
  CHECK(many != nullptr);
  delete[] many;
}
