/* cfi_program.h: the small programs in .eh_frame. They say for each instruction of a function where it keeps its
 * caller's registers (DWARF 5, 6.4.2). Pure.
 */
#pragma once

#include "profile/cfi.h"
#include "profile/cfi_reader.h"

struct cfi_program {
  struct cfi_reader common, function; /* one runs after the other */
  uint64_t code_unit;
  int64_t data_unit;
  uintptr_t start; /* of the function */
};

/* Executes the programs up to a place of the function and returns the rule there. */
struct cfi_rule cfi_program_rule(const struct cfi_program *program, uintptr_t place);
