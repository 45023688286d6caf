#include "os/fault.h"

#include "base/text.h"
#include "os/say.h"

#include <stdlib.h>

COLD static void fault_say(const char *before, const void *block, const char *after) {
  char bytes[160];
  struct text text = TEXT_IN(bytes);
  text_format(&text, "hakmem: %s%#lx%s\n", before, (uintptr_t)block, after);
  os_say(text.bytes);
}

COLD _Noreturn static void fault_abort(const char *before, const void *block, const char *after) {
  fault_say(before, block, after);
  abort();
}

void fault_double_free(const void *block) { fault_abort("double free of block ", block, ""); }
void fault_not_a_block(const void *block) { fault_abort("free of ", block, ", which is not the start of a block"); }
void fault_no_block_here(const void *block) {
  fault_abort("free of ", block, ", which lies in hakmem memory that holds no block");
}
static const char not_ours[] = ", which hakmem did not allocate";
void fault_foreign(const void *block) { fault_abort("free of ", block, not_ours); }
void fault_foreign_reported(const void *block) { fault_say("free of ", block, not_ours); }
void fault_delete_size(const void *block) { fault_abort("delete of block ", block, " with the size of another block"); }
void fault_written_after_free(const void *block) { fault_abort("write to block ", block, " after its free"); }
void fault_written_beyond(const void *block) { fault_abort("write beyond the end of block ", block, ""); }
void fault_realloc_foreign(const void *block) { fault_abort("realloc of ", block, not_ours); }
void fault_heap_destroyed(const void *heap) {
  fault_abort("use of heap ", heap,
              heap != NULL ? ", which was destroyed" : ", which is none: hak_heap_new returned NULL");
}

#ifdef HAK_DEBUG
void assert_failed(const char *what, const char *file, int line) {
  char bytes[400];
  struct text text = TEXT_IN(bytes);
  text_format(&text, "hakmem: internal check failed: %s at %s:%lu\n", what, file, (uint64_t)line);
  os_say(text.bytes);
  abort();
}
#endif
