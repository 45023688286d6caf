/* text: numbers in all notations, and that nothing is ever written behind the end. */
#include "unit.h"

#include "base/text.h"

static char bytes[64];

static struct text *empty(void) {
  static struct text text;
  memset(bytes, '#', sizeof bytes);
  bytes[0] = 0;
  text = TEXT_IN(bytes);
  return &text;
}

static const char *decimal(uint64_t value) {
  text_decimal(empty(), value);
  return bytes;
}

static const char *hex(uint64_t value) {
  text_format(empty(), "%#lx", value);
  return bytes;
}

UNIT_TEST(numbers_read_as_printf_writes_them) {
  uint64_t seed = UNIT_SEED;
  char wanted[64];
  for (unsigned i = 0; i < 2000; i++) {
    uint64_t value = test_random(&seed) >> (i % 64);
    snprintf(wanted, sizeof wanted, "%llu", (unsigned long long)value);
    assert_string_equal(decimal(value), wanted);
    snprintf(wanted, sizeof wanted, "0x%llx", (unsigned long long)value);
    assert_string_equal(hex(value), wanted);
  }
  assert_string_equal(decimal(0), "0");
  assert_string_equal(decimal(UINT64_MAX), "18446744073709551615");
  assert_string_equal(hex(0), "0x0");
  assert_string_equal(hex(UINT64_MAX), "0xffffffffffffffff");
}

/* For every capacity: the text is the beginning of the whole one, terminated, nothing behind it. */
UNIT_TEST(what_does_not_fit_is_cut_off) {
  static const char whole[] = "abc 184467440737095516150xdeadbeef";
  for (size_t capacity = 1; capacity <= sizeof whole + 3; capacity++) {
    memset(bytes, '#', sizeof bytes);
    bytes[0] = 0;
    struct text text = {.bytes = bytes, .capacity = capacity};
    if (capacity % 2) {
      text_string(&text, "abc ");
      text_decimal(&text, 18446744073709551615u);
      text_format(&text, "%#lx", 0xdeadbeefUL);
    } else {
      text_format(&text, "a%s %lu%#lx", "bc", 18446744073709551615u, 0xdeadbeefUL);
    }
    size_t length = min_size(capacity - 1, sizeof whole - 1);
    assert_int_equal(text.length, length);
    assert_memory_equal(bytes, whole, length);
    assert_int_equal(bytes[length], 0);
    for (size_t i = length + 1; i < sizeof bytes; i++)
      assert_int_equal(bytes[i], '#');
  }
}

UNIT_MAIN()
