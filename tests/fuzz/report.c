/* The report of HAKMEM_STATS=json, among other lines. */
#include "fuzz.h"

#include "tools/stats_read.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  char *text = fuzz_text((struct fuzz_input){data, data + size});
  static struct stats_snapshot snapshot;
  memset(&snapshot, 0, sizeof snapshot);
  const char *problem = stats_read(text, &snapshot);
  CHECK_SAY(problem == NULL || *problem != 0, "a refusal says why");
  CHECK(snapshot.class_count <= HAK_STATS_CLASSES);
  free(text);
  return 0;
}
