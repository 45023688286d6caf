/* format: the longest report of each kind fits; a file's pattern; the table's sums. */
#include "unit.h"

#include "inspect/figures.h"
#include "stats/format.h"

static struct stats_snapshot longest(void) {
  static char version[200];
  struct stats_snapshot snapshot;
  memset(&snapshot, 0xff, sizeof snapshot); /* all numbers have all digits */
  memset(version, 'v', sizeof version - 1);
  snapshot.version = version;
  snapshot.class_count = HAK_STATS_CLASSES;
  return snapshot;
}

UNIT_TEST(the_longest_fits) {
  static char bytes[STATS_FORMAT_BYTES_MAX];
  static struct stats_snapshot snapshot;
  snapshot = longest();
  for (enum stats_mode mode = STATS_TEXT; mode <= STATS_OPENMETRICS; mode++) {
    struct text text = TEXT_IN(bytes);
    stats_format(&text, mode, &snapshot);
    assert_true(text.length > 200 && text.length + 1 < text.capacity);
    assert_int_equal(text.bytes[text.length - 1], '\n');
    /* The control: what is cut off shows. */
    struct text cut = {.bytes = bytes, .capacity = text.length};
    stats_format(&cut, mode, &snapshot);
    assert_true(cut.length + 1 == cut.capacity);
  }
}

UNIT_TEST(paths) {
  static const struct {
    const char *pattern, *path;
    bool has_id;
  } rows[] = {{"/a", "/a", false},      {"/a.%p", "/a.77", true}, {"%p%p", "7777", true},
              {"100%%", "100%", false}, {"a%%p", "a%p", false},   {"a%", "a%", false},
              {"%x%p", "%x77", true},   {"", "", false},          {"%%%p%%", "%77%", true}};
  char path[16];
  bool has_id;
  for (size_t i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    assert_true(text_path(rows[i].pattern, 77, path, sizeof path, &has_id));
    assert_string_equal(path, rows[i].path);
    assert_int_equal(has_id, rows[i].has_id);
  }
  assert_false(text_path("/a/name/that/is/long", 77, path, sizeof path, &has_id));
  assert_false(text_path("/a/name/%p", UINT64_MAX, path, sizeof path, &has_id));
}

UNIT_TEST(parts) {
  struct hak_stats stats = {.live_bytes = 1,
                            .bin_bytes = 10,
                            .in_flight_bytes = 100,
                            .slab_free_bytes = 1000,
                            .extent_free_bytes = 10000,
                            .extent_purged_bytes = 100000,
                            .extent_unused_bytes = 1000000,
                            .large_cached_bytes = 10000000,
                            .metadata_bytes = 100000000,
                            .large_bytes = 5,
                            .mapped_bytes = 5,
                            .bin_blocks = 5,
                            .purged_bytes = 5};
  assert_true(stats_parts_sum(&stats) == 111111111u);
}

UNIT_MAIN()
