/* The ELF file of a program or library, as hak doctor reads it. */
#include "fuzz.h"

#include "tools/doctor_elf.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  struct elf elf;
  struct fuzz_file file = fuzz_file("elf", data, size);
  if (elf_open(&elf, file.path)) {
    for (unsigned i = 0; i < elf.needed_count; i++)
      CHECK(strlen(elf.needed[i]) < elf.length);
    CHECK(!elf.interpreter || strlen(elf.interpreter) < elf.length);
    elf_defines(&elf, "malloc");
    elf_contains(&elf, "hakmem");
  }
  free(elf.bytes); /* the doctor keeps it to its end */
  close(file.fd);
  return 0;
}
