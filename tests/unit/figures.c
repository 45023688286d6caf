/* figures: fractions, and bytes with their units. What does not fit: unit.text. */
#include "unit.h"

#include "inspect/figures.h"

static char bytes[64];

static const char *fraction(uint64_t value, uint64_t scale, unsigned places) {
  struct text text = TEXT_IN(bytes);
  text_fraction(&text, value, scale, places);
  return bytes;
}

static const char *units(uint64_t value) {
  struct text text = TEXT_IN(bytes);
  text_bytes(&text, value);
  return bytes;
}

UNIT_TEST(fractions_round_down) {
  assert_string_equal(fraction(0, 3, 2), "0.00");
  assert_string_equal(fraction(2, 3, 0), "0");
  assert_string_equal(fraction(2, 3, 4), "0.6666");
  assert_string_equal(fraction(1999, 1000, 2), "1.99");
  assert_string_equal(fraction(1005, 1000, 3), "1.005");
  assert_string_equal(fraction(100 * 7, 7, 1), "100.0");
  assert_string_equal(fraction(UINT64_MAX - 1, UINT64_MAX, 1), "0.9");
  assert_string_equal(fraction(UINT64_MAX, 1, 2), "18446744073709551615.00");
  assert_string_equal(fraction(UINT64_MAX, (uint64_t)1 << 60, 1), "15.9");
}

UNIT_TEST(bytes_get_their_unit) {
  assert_string_equal(units(0), "0 B");
  assert_string_equal(units(1023), "1023 B");
  assert_string_equal(units(1024), "1 KiB");
  assert_string_equal(units(1536), "1.5 KiB");
  assert_string_equal(units(10 * 1024 - 1), "9.9 KiB");
  assert_string_equal(units(10 * 1024), "10 KiB");
  assert_string_equal(units(10 * 1024 + 102), "10 KiB");
  assert_string_equal(units(10 * 1024 + 103), "10.1 KiB");
  assert_string_equal(units(100 * 1024 - 1), "99.9 KiB");
  assert_string_equal(units(101 * 1024 - 1), "100 KiB");
  assert_string_equal(units(1024 * 1024 - 1), "1023 KiB");
  assert_string_equal(units(1024 * 1024), "1 MiB");
  assert_string_equal(units((uint64_t)5 << 30), "5 GiB");
  assert_string_equal(units((uint64_t)1 << 40), "1 TiB");
  assert_string_equal(units(UINT64_MAX), "15.9 EiB");
}

UNIT_MAIN()
