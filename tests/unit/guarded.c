/* guarded: where the process has too many mappings, the system refuses to give access to a freed object's addresses and
 * to unmap them. What stays resident of such objects is counted, and goes by a trim.
 */
#include "large/guarded.h"
#include "unit.h"

#define BYTES ((size_t)200 << 10)
#define OBJECTS 60u /* of a part the pages stay, and the first ones have waited long enough */

static bool is_refused;
TEST_WRAP(bool, os_commit, void *address, size_t size) { return !is_refused && __real_os_commit(address, size); }
TEST_WRAP(bool, os_unmap, void *address, size_t size) { return !is_refused && __real_os_unmap(address, size); }

static char *objects[OBJECTS];

static size_t resident_bytes(void) {
  size_t bytes = 0;
  for (unsigned i = 0; i < OBJECTS; i++)
    bytes += os_resident_bytes(objects[i], BYTES);
  return bytes;
}

UNIT_TEST(what_cannot_be_unmapped_has_no_pages) {
  size_t tables = usage_tables(), dirty;
  guarded_begin();
  for (unsigned i = 0; i < OBJECTS; i++) {
    objects[i] = UNIT_GOT(large_alloc(BYTES, 16, 4711, &dirty));
    memset(objects[i], 1, BYTES);
  }
  for (unsigned i = 0; i < OBJECTS; i++)
    large_free(objects[i]);
  unit_skip_if(resident_bytes() == 0, "pages never stay, because a limit of the system counts them");
  assert_true(resident_bytes() <= usage_tables() - tables);
  is_refused = true;
  for (unsigned i = 0; i < 4; i++)
    large_alloc(BYTES, 16, 4711, &dirty);
  is_refused = false;
  assert_true(resident_bytes() <= usage_tables() - tables);
  guarded_trim();
  assert_int_equal(resident_bytes(), 0);
  assert_int_equal(usage_tables(), tables);
}

UNIT_MAIN(unit_alone())
