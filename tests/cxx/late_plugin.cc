// late_plugin.cc: C++ code with a new_handler, to be opened by a C program after its start.
#include <cstdint>
#include <new>
#include <string>
#include <vector>

static int calls;

static void handler() {
  calls++;
  std::set_new_handler(nullptr);
}

extern "C" __attribute__((visibility("default"))) int late_work(std::size_t impossible) {
  std::vector<std::string> words;
  for (int i = 0; i < 1000; i++)
    words.push_back("a string that does not fit inline: " + std::to_string(i));
  std::set_new_handler(handler);
  try {
    void *block = ::operator new(impossible);
    ::operator delete(block);
    return 1;
  } catch (const std::bad_alloc &) {
    return calls == 1 && words[999].size() > 30 ? 0 : 2;
  }
}
