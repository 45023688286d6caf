/* Files of /proc: the list of mappings, the sums over them, and the memory of an ELF file that may not be one. */
#define FUZZ_FILES

#include "fuzz.h"

#include "inspect/maps.h"
#include "inspect/module.h"
#include "inspect/process.h"

static struct fuzz_input whole;

static bool fuzz_find(const char *path, struct fuzz_input *content) {
  *content = whole;
  return strncmp(path, "/proc/self/", 11) == 0;
}

static void maps_read(void) {
  struct os_maps maps;
  struct os_mapping mapping;
  os_maps_open(&maps);
  CHECK(maps.lines.fd >= 0);
  while (os_maps_next(&maps, &mapping))
    CHECK(mapping.start < mapping.limit && strlen(mapping.name) < OS_MAPS_BYTES);
  os_maps_close(&maps);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  unsigned char id[OS_MODULE_ID_BYTES];
  const char *found;
  struct hak_process_stats process;
  whole = (struct fuzz_input){data, data + size};
  if (size == 0)
    return 0;
  maps_read();
  os_process_read(&process);
  CHECK(os_module_id_mapped(0, id) <= sizeof id);
  fuzz_files_closed();
  size_t length = os_module_id_in_notes((const char *)data, size, &found);
  CHECK(length == 0 || (found >= (const char *)data && found + length <= (const char *)data + size));
  return 0;
}
