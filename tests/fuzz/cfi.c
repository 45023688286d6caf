/* Call frame information: the rule of a few places. The first bytes say where .eh_frame_hdr is, and for which
 * address. */
#include "fuzz.h"

#include "profile/cfi.h"

#ifndef FUZZ_FAULT_BYTES
#define FUZZ_FAULT_BYTES 0 /* the control: so many bytes behind the end count as information */
#endif

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct fuzz_input input = {data, data + size};
  size_t header = fuzz_number(&input, 2);
  uint64_t place = fuzz_number(&input, 4);
  size_t length = (size_t)(input.end - input.at);
  const uintptr_t base = (uintptr_t)0x550000000000;
  struct os_module_frames bytes = {.start = input.at,
                                   .end = input.end + FUZZ_FAULT_BYTES,
                                   .header = input.at + (length ? header % length : 0),
                                   .moved = base - (uintptr_t)input.at};
  if (length == 0)
    return 0;
  for (unsigned i = 0; i < 4; i++) {
    struct cfi_rule rule = {0}, again = {0};
    bool is_found = cfi_find(&bytes, base + place + i * 16, &rule);
    CHECK(is_found == cfi_find(&bytes, base + place + i * 16, &again) && memcmp(&rule, &again, sizeof rule) == 0);
  }
  return 0;
}
