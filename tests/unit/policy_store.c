/* policy_store: sites that mean nothing in another process are not kept, others are, with the names of their modules;
 * what was learned before comes back; only an engine that evolves writes, and only if it has learned something. */
#include "unit.h"

#include "adapt/policy_engine.h"
#include "adapt/policy_file.h"
#include "adapt/policy_store.h"

#define ROUNDS 40u
#define NO_MODULE ((uintptr_t)0x1000) /* an address where nothing lies */

static char folder[256], path[300];
static unsigned char bytes[MIB];

static void habit(uintptr_t caller) {
  for (unsigned i = 0; i < ROUNDS; i++)
    policy_large_freed(policy_large_taken(caller, MIB), MIB, true);
}

static void policy(const char *value) { CHECK(option_set(OPTION_POLICY, value) == OPTION_OK); }

static void read_silently(void) { CHECK(*policy_store_read() == 0); }
static void write_silently(void) { CHECK(*policy_store_write() == 0); }

static bool is_there(void) { return access(path, F_OK) == 0; }

static void file_read(struct policy_file *file) {
  FILE *stream = CHECK_GOT(fopen(path, "rb"));
  size_t length = fread(bytes, 1, sizeof bytes, stream);
  fclose(stream);
  CHECK(policy_file_open(file, bytes, length) == POLICY_FILE_OK);
}

static unsigned sites_with(const struct policy_file *file, bool tagged) {
  unsigned count = 0;
  for (uint32_t i = 0; i < file->record_count; i++) {
    struct policy_record record = policy_file_record(file, i);
    count += record.kind == POLICY_RECORD_SITE && (policy_tag_of(record.site) != 0) == tagged;
  }
  return count;
}

static void learns(void *unused) {
  struct policy_file file;
  policy("evolving");
  read_silently();
  write_silently();
  CHECK(!is_there()); /* nothing was learned */
  habit(NO_MODULE);
  habit((uintptr_t)learns);
  policy("frozen");
  write_silently();
  policy("off");
  write_silently();
  CHECK(!is_there());
  policy("evolving");
  write_silently();
  CHECK(policy_stats().arms == 2);
  file_read(&file);
  CHECK(sites_with(&file, true) == 1 && sites_with(&file, false) == 0);
  CHECK(file.module_count == 1 && strstr(policy_file_module(&file, 0).name, "unit-policy_store") != NULL);
}

static void learns_nothing_more(void *unused) {
  struct policy_file file;
  policy("evolving");
  read_silently();
  CHECK(policy_stats().arms == 1);
  unlink(path);
  write_silently();
  CHECK(!is_there());
  habit(NO_MODULE);
  write_silently();
  file_read(&file);
  CHECK(sites_with(&file, true) == 1 && file.module_count == 1); /* as read, not as met */
}

UNIT_TEST(what_was_learned_comes_back) {
  unit_passes_in_child(learns, NULL);
  unit_passes_in_child(learns_nothing_more, NULL);
}

static int begin(void **unused) {
  unit_folder_make(folder, sizeof folder);
  snprintf(path, sizeof path, "%s/file", folder);
  unit_alone();
  unit_option("HAKMEM_POLICY_FILE", path);
  return 0;
}

static int end(void **unused) {
  unlink(path);
  return rmdir(folder);
}

int main(void) { return unit_run(begin, end); }
