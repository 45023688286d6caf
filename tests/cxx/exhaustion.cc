// When memory is out: the new_handler runs until it gives up, bad_alloc is thrown, nothrow gives null,
// also when the handler throws.
#include <cstdint>
#include <new>

#include "../check.h"

static int handler_calls;
static const std::size_t impossible = static_cast<std::size_t>(PTRDIFF_MAX);

static void give_up_after_three() {
  if (++handler_calls == 3)
    std::set_new_handler(nullptr);
}

static void throw_at_once() {
  handler_calls++;
  throw std::bad_alloc();
}

struct own_exception {};

static void throw_other() { throw own_exception(); }

template <typename Function> static bool throws_bad_alloc(Function function) {
  try {
    function();
  } catch (const std::bad_alloc &) {
    return true;
  }
  return false;
}

int main(int argc, char **argv) {
  test_begin(argc, argv);
  const std::size_t size = test_opaque_size(impossible);
  const auto alignment = std::align_val_t{64};
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new(size)); }));
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new[](size)); }));
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new(size, alignment)); }));
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new[](size, alignment)); }));
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK(::operator new[](size, std::nothrow) == nullptr);
  CHECK(::operator new(size, alignment, std::nothrow) == nullptr);
  CHECK(::operator new[](size, alignment, std::nothrow) == nullptr);

  std::set_new_handler(give_up_after_three);
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new(size)); }));
  CHECK_SAY(handler_calls == 3, "%d calls", handler_calls);
  handler_calls = 0;
  std::set_new_handler(give_up_after_three);
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK_SAY(handler_calls == 3, "%d calls", handler_calls);
  handler_calls = 0;
  std::set_new_handler(give_up_after_three);
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new(size, alignment)); }));
  CHECK_SAY(handler_calls == 3, "%d calls", handler_calls);

  handler_calls = 0;
  std::set_new_handler(throw_at_once);
  CHECK(throws_bad_alloc([=] { test_opaque(::operator new(size)); }));
  CHECK(::operator new(size, std::nothrow) == nullptr);
  CHECK(::operator new[](size, std::nothrow) == nullptr);
  CHECK(::operator new(size, alignment, std::nothrow) == nullptr);
  CHECK_SAY(handler_calls == 4, "%d calls", handler_calls);
  std::set_new_handler(throw_other);
  bool own_seen = false;
  try {
    test_opaque(::operator new(size));
  } catch (const own_exception &) {
    own_seen = true;
  }
  CHECK(own_seen);
  std::set_new_handler(nullptr);
  void *block = ::operator new(1000);
  CHECK(block != nullptr);
  ::operator delete(block);
  // The check of an array's size itself.
  volatile std::size_t count = SIZE_MAX / 4;
  CHECK(throws_bad_alloc([=] { test_opaque(new long[count]); }));
}
