// hak::heap, hak::allocator and hak::memory_resource: containers live in their heap, limits throw, a heap that moves
// keeps its blocks.
#include <hakmem/hakmem.hpp>

#include <cstring>
#include <list>
#include <map>
#include <memory_resource>
#include <string>
#include <thread>
#include <unordered_map>
#include <vector>

#include "../check.h"

using word = std::basic_string<char, std::char_traits<char>, hak::allocator<char>>;

struct alignas(256) wide {
  char bytes[300];
};

static void containers_live_in_a_heap() {
  hak::heap heap;
  std::size_t empty = heap.stats().held_bytes;
  std::vector<wide, hak::allocator<wide>> wides(heap);
  for (int i = 0; i < 100; i++)
    wides.push_back(wide{});
  CHECK(reinterpret_cast<std::uintptr_t>(wides.data()) % 256 == 0);
  std::map<int, word, std::less<int>, hak::allocator<std::pair<const int, word>>> words(
      (hak::allocator<std::pair<const int, word>>(heap)));
  for (int i = 0; i < 1000; i++)
    words.emplace(i, word(static_cast<std::size_t>(i), 'x', heap));
  CHECK(heap.stats().live_bytes > empty + 500000);
  CHECK(hak::allocator<int>(heap) == hak::allocator<char>(heap));
  hak::heap other;
  CHECK(hak::allocator<int>(heap) != hak::allocator<int>(other));
  std::thread([&] { words.clear(); }).join();
}

static void a_heap_serves_pmr() {
  hak::heap heap;
  hak::memory_resource resource(heap), same(heap);
  CHECK(resource == same && resource != *std::pmr::new_delete_resource());
  std::pmr::unordered_map<int, std::pmr::string> words(&resource);
  for (int i = 0; i < 1000; i++)
    words.emplace(i, std::string(100, 'y'));
  CHECK(words.at(999).get_allocator().resource() == &resource);
  CHECK(heap.stats().live_bytes > 100000);
  void *block = resource.allocate(100, 4096);
  CHECK(reinterpret_cast<std::uintptr_t>(block) % 4096 == 0);
  resource.deallocate(block, 100, 4096);
}

static void a_limit_throws() {
  hak::heap heap(std::size_t{1} << 20);
  bool threw = false;
  try {
    std::list<int, hak::allocator<int>> numbers(heap);
    for (int i = 0; i < 1000000; i++)
      numbers.push_back(i);
  } catch (const std::bad_alloc &) {
    threw = true;
  }
  CHECK(threw && heap.malloc(10) != nullptr);
  threw = false;
  try {
    hak::allocator<wide>(heap).allocate(test_opaque_size(SIZE_MAX / 2));
  } catch (const std::bad_array_new_length &) {
    threw = true;
  }
  CHECK(threw);
}

static void a_moved_heap_keeps_its_blocks() {
  hak::heap first;
  char *block = static_cast<char *>(first.malloc(100));
  std::memset(block, 'z', 100);
  hak::heap second = std::move(first);
  CHECK(first.handle() == nullptr && block[99] == 'z');
  first = hak::heap(0);
  block = static_cast<char *>(second.realloc(block, 100000));
  CHECK(block[99] == 'z' && second.stats().live_bytes >= 100000 && first.stats().live_bytes == 0);
  second.free(block);
  {
    hak::default_heap scope(first);
    hak_heap *before;
    CHECK(hak_heap_set_default(first.handle(), &before) == 0 && before == first.handle());
  }
  hak_heap *before;
  CHECK(hak_heap_set_default(nullptr, &before) == 0 && before == nullptr);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  containers_live_in_a_heap();
  a_heap_serves_pmr();
  a_limit_throws();
  a_moved_heap_keeps_its_blocks();
}
