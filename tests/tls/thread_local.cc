// Objects with thread storage duration allocate and free in their destructors, also while other threads
// end, and in the main thread at exit.
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "../check.h"

static int destroyed;

struct holder {
  std::vector<std::string> words;
  std::unique_ptr<char[]> bytes{new char[100]};
  ~holder() {
    std::vector<std::string> copy(words);
    copy.push_back(std::string(5000, 'x'));
    bytes.reset(new char[400000]);
    CHECK(copy.size() == words.size() + 1);
    __atomic_add_fetch(&destroyed, 1, __ATOMIC_RELAXED);
  }
};

static thread_local holder local;

static void worker(std::vector<std::string> *out, int number) {
  for (int i = 0; i < 50; i++)
    local.words.push_back("a string too long to be kept inline, number " + std::to_string(i));
  out->push_back(local.words[static_cast<size_t>(number % 50)]);
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  long waves = test_rounds(200, 20);
  for (long wave = 0; wave < waves; wave++) {
    std::vector<std::string> results[4];
    std::vector<std::thread> threads;
    for (int i = 0; i < 4; i++)
      threads.emplace_back(worker, &results[i], i);
    for (auto &thread : threads)
      thread.join();
    for (auto &result : results)
      CHECK(result.size() == 1 && result[0].size() > 40);
  }
  CHECK(destroyed == 4 * waves);
  local.words.push_back("freed by the main thread's destructor at exit, after main");
}
